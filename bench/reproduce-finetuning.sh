#!/usr/bin/env bash
# Measures what docs/results.md reports about fine-tuned models: trains one model a layout and seed on both training
# sets, then answers and scores both test sets with it, and compares with `ar`.
#
#   bench/reproduce-finetuning.sh DATA OUT "tree ar stacked" "0 1" [python]
#
# The layouts may also be "tree-short": `tree` with short keys (engine.prompt.keys); "tree-both": documents are read both
# ways (engine.document_attention); or "tree-longer", "tree-both-longer", "ar-longer" and "stacked-longer": an epoch more,
# three in ten examples in varied schemas and texts, of what "tree", "tree-both", "ar" or "stacked" gave; or
# "tree-both-swapped": another epoch of OUT/mean, the mean of models (bench/mean_of_models.py), with values swapped.
# DATA holds {oa-mine,ae-110k}.{train,test}.jsonl as published by ExtractGPT. Every part is resumable: what is finished
# is not repeated, what was killed continues.
set -euo pipefail
data=$(realpath "$1") layouts=$3 seeds=$4 python=${5:-.venv/bin/python}
for label in $layouts; do
    case $label in
        tree | ar | stacked | tree-short | tree-both | tree-longer | tree-both-longer | tree-both-swapped | ar-longer | stacked-longer) ;;
        *) echo "no layout of this script: $label" >&2 && exit 2 ;;
    esac
done
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."

for name in oa-mine ae-110k; do
    test -e "$out/$name.yaml" || "$python" pipelines/schema.py import "$data/$name.train.jsonl" --plain --out "$out/$name.yaml"
done
datasets="[{gold: $data/oa-mine.train.jsonl, schemas: $out/oa-mine.yaml,
            input: {path: $data/oa-mine.train.jsonl, fields: {title: input}}},
           {gold: $data/ae-110k.train.jsonl, schemas: $out/ae-110k.yaml,
            input: {path: $data/ae-110k.train.jsonl, fields: {title: input}}}]"

score_one() { # data set, label, settings
    "$python" pipelines/extract.py --config configs/extractgpt.yaml --set "input.path=$data/$1.test.jsonl" \
        --set "schemas=$out/$1.yaml" --set "output=$out/$1-$2" "${@:3}"
    "$python" pipelines/evaluate.py "$out/$1-$2" --gold "$data/$1.test.jsonl" --comparison folded --json >"$out/$1-$2.txt"
}

score() { # label, settings
    for name in oa-mine ae-110k; do score_one "$name" "$@"; done
}

for seed in $seeds; do
    for label in $layouts; do
        layout=${label%%-*} keys=full read=auto base_model=smollm2 run_seed=$seed epochs=2 rate=2.0e-4 variants=0 swapped=0
        case $label in *-both*) read=bidirectional ;; esac
        case $label in
            *-short) keys=short ;;
            *-swapped) base_model=$out/mean run_seed=$((seed + 20)) epochs=1 rate=5.0e-5 variants=0.3 swapped=0.7 ;;
            *-longer) base_model=$out/${label%-longer}-$seed/model run_seed=$((seed + 10)) epochs=1 rate=1.0e-4 variants=0.3 ;;
        esac
        "$python" pipelines/finetune.py --config configs/finetune-extractgpt.yaml --set "datasets=$datasets" \
            --set "layout=$layout" --set "engine.prompt.keys=$keys" --set "engine.document_attention=$read" \
            --set "output=$out/$label-$seed" --set "model=$base_model" --set "seed=$run_seed" --set "optimizer.epochs=$epochs" \
            --set "optimizer.learning_rate=$rate" --set "labels.variants=$variants" --set "labels.swapped=$swapped"
        model="model=$out/$label-$seed/model"
        case $label in
            tree*) score "$label-$seed" --set "$model" --set "engine.prompt.keys=$keys" ;;
            ar*) score "$label-$seed" --set "$model" --set decoding=ar ;;
            stacked-longer)
                score "stacked-1-longer-$seed" --set "$model" --set engine.layout=stacked --set engine.stack_size=1
                score "stacked-6-longer-$seed" --set "$model" --set engine.layout=stacked
                ;;
            stacked)
                score "stacked-1-$seed" --set "$model" --set engine.layout=stacked --set engine.stack_size=1
                score "stacked-6-$seed" --set "$model" --set engine.layout=stacked
                # What stacking and the width of the gaps do to one and the same model.
                for stack in 2 4; do
                    score_one oa-mine "stacked-$stack-$seed" --set "$model" --set engine.layout=stacked \
                        --set "engine.stack_size=$stack"
                done
                for gap in 10 60; do
                    score_one oa-mine "stacked-1-gap$gap-$seed" --set "$model" --set engine.layout=stacked \
                        --set engine.stack_size=1 --set "engine.max_value_tokens=$gap"
                done
                ;;
        esac
    done
done

# Each against the `ar` of as many epochs: the difference, paired over products, and answers that differ.
for seed in $seeds; do
    for label in tree tree-short tree-both stacked-1 stacked-6 tree-longer tree-both-longer stacked-1-longer stacked-6-longer; do
        ar=ar
        test "$label" = "${label%-longer}" || ar=ar-longer
        for name in oa-mine ae-110k; do
            run="$out/$name-$label-$seed" baseline="$out/$name-$ar-$seed"
            test -e "$run.txt" && test -e "$baseline.txt" || continue
            "$python" pipelines/evaluate.py "$baseline" "$run" --gold "$data/$name.test.jsonl" >"$run-against-ar.txt"
        done
    done
done
