#!/usr/bin/env bash
# What FP8 costs in quality: F1 of the shipped adapter on both test sets with and without it, and the interval of the
# difference. On a CPU FP8 is emulated, with the numerics of a GPU.
#
#   bench/reproduce-fp8.sh DATA OUT [python] [option of extract.py, such as --set engine.dtype=float32 or --limit 100]...
#
# DATA holds {oa-mine,ae-110k}.{train,test}.jsonl as published by ExtractGPT. A run that is finished is not repeated.
set -euo pipefail
data=$(realpath "$1") python=${3:-.venv/bin/python}
mkdir -p "$2"
out=$(realpath "$2")
options=("${@:4}")
cd "$(dirname "$0")/.."
for name in oa-mine ae-110k; do
    gold=$data/$name.test.jsonl
    test -e "$out/$name.yaml" || "$python" pipelines/schema.py import "$data/$name.train.jsonl" --out "$out/$name.yaml"
    for quantization in null fp8; do
        "$python" pipelines/extract.py --config configs/extractgpt.yaml --set adapter=adapters/smollm2-generalist \
            --set "input.path=$gold" --set "schemas=$out/$name.yaml" --set "engine.quantization=$quantization" \
            --set "output=$out/$name-$quantization" "${options[@]}"
        "$python" pipelines/evaluate.py "$out/$name-$quantization" --gold "$gold" --brief
    done
    "$python" pipelines/compare.py "$out/$name-null" "$out/$name-fp8" --gold "$gold" --out "$out/$name" \
        | tee "$out/$name.txt"
done
