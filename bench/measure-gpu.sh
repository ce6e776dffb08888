#!/usr/bin/env bash
# Measures what docs/results.md has of a GPU: exactness, then speed of Qwen3-1.7B's and Qwen3-8B's shapes
# (random weights, long listings of real token lengths) in bf16 and NF4, against transformers' generate and continuous
# batching, the dense ceiling and, where it is installed, vLLM. For one NVIDIA GPU of 48 GB or more (L40S, H200); where
# there are two, also the model shared by both. Disk: 25 GB.
#
#   bench/measure-gpu.sh OUT [python] [python of an environment with vLLM for CUDA]
#
# Every part leaves its table and its JSON line in OUT/NAME.txt and is not repeated when it is there. A part that fails
# leaves OUT/NAME.failed; the others go on, and the exit code is 1.
set -uo pipefail
mkdir -p "$1"
out=$(realpath "$1") python=$(realpath -s "${2:-.venv/bin/python}") vllm=${3:+$(realpath -s "$3")}
cd "$(dirname "$0")/.." || exit 2
"$python" -c 'import torch, sys; sys.exit(None if torch.cuda.is_available() else "no CUDA device: nothing to measure")' ||
    exit 2
failures=0

part() { # name, command: runs it unless its output is there
    test -e "$out/$1.txt" && return
    echo "== $1"
    if "${@:2}" 2>&1 | tee "$out/$1.failed"; then
        mv "$out/$1.failed" "$out/$1.txt"
    else
        failures=$((failures + 1))
    fi
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv | tee "$out/gpu.csv"
part tests "$python" -m pytest -q tests/gpu
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')

for shape in qwen3-1.7b qwen3-8b; do
    model="$out/models/$shape"
    part "$shape-model" "$python" bench/random_model.py "$shape" --out "$model"
    job=("$python" bench/benchmark.py --config configs/demo.yaml --set "model=$model" --set engine.device=cuda)
    # Batches of 128 for the rivals: a GPU has room for them.
    listings=("${job[@]}" --workload listings --limit 512 --batch-size 128)
    part "$shape-bf16" "${listings[@]}"
    part "$shape-bf16-continuous" "${listings[@]}" --only "transformers continuous batching"
    # Prefixes shared by matrix products instead of copied for the fused kernel.
    part "$shape-bf16-eager" "${listings[@]}" --only tree --set engine.attention=eager
    # By a kernel of our own, which reads neither masks nor copies of prefixes.
    part "$shape-bf16-triton" "${listings[@]}" --only tree --set engine.attention=triton
    # The same with large steps: 96.6 and 281.8 products/s of docs/log/2026-11-26-gpu-h200.md were taken so.
    part "$shape-bf16-triton-large" "${listings[@]}" --limit 1024 --only tree --set engine.attention=triton \
        --set engine.max_tokens_per_step=16384 --set engine.max_prompts_per_cohort=128
    part "$shape-profile-triton" "${listings[@]}" --profile --set engine.attention=triton
    # Layers by transformers' code, without torch.compile between the linear layers; and the ceiling compiled as well.
    part "$shape-bf16-layers" "${listings[@]}" --only tree --compiled --set engine.layers=transformers
    part "$shape-bf16-compiled" "${listings[@]}" --only tree --compiled
    # One step at a time: the GPU waits for the host, and the host for the GPU.
    part "$shape-bf16-in-turn" "${listings[@]}" --only tree --set engine.overlap_steps=false
    # Fewer and larger steps and cohorts: fewer kernels to launch for as many tokens.
    part "$shape-bf16-large" "${listings[@]}" --only tree --set engine.max_tokens_per_step=16384 \
        --set engine.max_prompts_per_cohort=128
    # Keys of one token for four.
    part "$shape-bf16-short-keys" "${listings[@]}" --only "transformers generate" --set engine.prompt.keys=short
    part "$shape-nf4" "${listings[@]}" --set engine.quantization=nf4 --only "transformers generate"
    part "$shape-profile" "${listings[@]}" --profile
    part "$shape-stack" "${listings[@]}" --sweep stack --out "$out/plots-$shape"
    part "$shape-single" "${job[@]}" --workload single
    # Two GPUs that share the model against one, through the job; it prints products/s.
    for size in $(test "$gpus" -lt 2 || echo 1 2); do
        part "$shape-shared-by-$size" "$python" pipelines/extract.py --config configs/demo.yaml --set adapter=null \
            --set "model=$model" --set engine.device=cuda --set "engine.tensor_parallel=$size" \
            --set "output=$out/runs/$shape-shared-by-$size"
    done
    if test -n "$vllm"; then
        part "$shape-vllm" "${listings[@]}" --vllm "$vllm" --vllm-block-size 16 --only "vLLM AR" --only "vLLM fan-out"
    fi
done
test "$failures" = 0 || echo "$failures parts failed: see $out/*.failed"
test "$failures" = 0
