#!/usr/bin/env bash
# Measures what docs/results.md reports: quality and speed of tree, stacked (J=1, J=6) and ar on both test sets.
#
#   bench/reproduce.sh DATA OUT [python]
#
# DATA holds {oa-mine,ae-110k}.{train,test}.jsonl as published by ExtractGPT. A run that is finished is not repeated.
set -euo pipefail
data=$(realpath "$1") python=${3:-.venv/bin/python}
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
for name in oa-mine ae-110k; do
    test -e "$out/$name.yaml" || "$python" pipelines/schema.py import "$data/$name.train.jsonl" --plain --out "$out/$name.yaml"
    job=(--config configs/extractgpt.yaml --set "input.path=$data/$name.test.jsonl" --set "schemas=$out/$name.yaml")
    for variant in "tree engine.layout=tree" "stacked-1 engine.layout=stacked engine.stack_size=1" \
        "stacked-6 engine.layout=stacked" "ar decoding=ar"; do
        read -r label settings <<<"$variant"
        changes=()
        for setting in $settings; do changes+=(--set "$setting"); done
        "$python" pipelines/extract.py "${job[@]}" "${changes[@]}" --set "output=$out/$name-$label"
        "$python" pipelines/evaluate.py "$out/$name-$label" --gold "$data/$name.test.jsonl" --comparison folded --json \
            | tee "$out/$name-$label.txt"
    done
done
