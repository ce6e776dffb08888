#!/usr/bin/env bash
# Measures what docs/results.md reports about quality, on both test sets: tree, stacked (J=1, J=6) and ar.
#
#   bench/reproduce.sh DATA OUT                          the models as they come
#   bench/reproduce.sh DATA OUT "tree ar stacked" "0 1"  one trained for each layout and seed, compared with `ar`
#
# A layout may also be "tree-short" (short keys) or "tree-both" (documents are read both ways). DATA holds
# {oa-mine,ae-110k}.{train,test}.jsonl as published by ExtractGPT. What is finished is not repeated, what was killed
# continues. PYTHON names another interpreter than .venv's.
set -euo pipefail
data=$(realpath "$1") layouts=${3:-} seeds=${4:-0} python=${PYTHON:-.venv/bin/python}
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
for name in oa-mine ae-110k; do
    test -e "$out/$name.yaml" || "$python" -m pipelines.cli schema import "$data/$name.train.jsonl" --plain --out "$out/$name.yaml"
done

score() { # label, settings
    local changes=() name setting
    for setting in "${@:2}"; do changes+=(--set "$setting"); done
    for name in oa-mine ae-110k; do
        "$python" pipelines/extract.py --config configs/extractgpt.yaml --set "input.path=$data/$name.test.jsonl" \
            --set "schemas=$out/$name.yaml" --set "output=$out/$name-$1" "${changes[@]}"
        "$python" -m pipelines.cli evaluate "$out/$name-$1" --gold "$data/$name.test.jsonl" --comparison folded --json \
            | tee "$out/$name-$1.txt"
    done
}

all_of() { # suffix, layout, settings
    case $2 in
        tree*) score "$2$1" engine.layout=tree "${@:3}" ;;
        ar) score "ar$1" decoding=ar "${@:3}" ;;
        stacked)
            score "stacked-1$1" engine.layout=stacked engine.stack_size=1 "${@:3}"
            score "stacked-6$1" engine.layout=stacked "${@:3}"
            ;;
        *) echo "no layout of this script: $2" >&2 && exit 2 ;;
    esac
}

if test -z "$layouts"; then
    for layout in tree stacked ar; do all_of "" "$layout"; done
fi
datasets="[{gold: $data/oa-mine.train.jsonl, schemas: $out/oa-mine.yaml,
            input: {path: $data/oa-mine.train.jsonl, fields: {title: input}}},
           {gold: $data/ae-110k.train.jsonl, schemas: $out/ae-110k.yaml,
            input: {path: $data/ae-110k.train.jsonl, fields: {title: input}}}]"
for seed in $seeds; do
    for layout in $layouts; do
        keys=full read=auto
        case $layout in *-short) keys=short ;; *-both) read=bidirectional ;; esac
        "$python" -m pipelines.cli finetune --config configs/finetune-extractgpt.yaml --set "datasets=$datasets" \
            --set "layout=${layout%%-*}" --set "engine.prompt.keys=$keys" --set "engine.document_attention=$read" \
            --set "output=$out/$layout-$seed" --set "seed=$seed" --set optimizer.epochs=2
        all_of "-$seed" "$layout" "model=$out/$layout-$seed/model" "engine.prompt.keys=$keys"
    done
    # The difference from `ar`, paired over products, and the answers that differ.
    for name in oa-mine ae-110k; do
        for run in "$out/$name"-{tree*,stacked*}-"$seed"; do
            test -d "$run" && test -d "$out/$name-ar-$seed" || continue
            "$python" -m pipelines.cli evaluate "$out/$name-ar-$seed" "$run" --gold "$data/$name.test.jsonl" >"$run-against-ar.txt"
        done
    done
done
