#!/usr/bin/env bash
# Measures on a GPU what docs/results.md has from a CPU only: exactness, then speed of Qwen3-1.7B's and Qwen3-8B's shapes
# (random weights, long listings of real token lengths) in bf16 and NF4, against transformers' generate and continuous
# batching, the dense ceiling and, where it is installed, vLLM. For one NVIDIA GPU of 48 GB or more (L40S, H200);
# disk: 20 GB.
#
#   docs/measure-gpu.sh OUT [python] [python of an environment with vLLM for CUDA]
#
# Every part leaves its table and its JSON line in OUT and is not repeated when it is there; the rest goes on.
set -euo pipefail
mkdir -p "$1"
out=$(realpath "$1") python=${2:-.venv/bin/python} vllm=${3:-}
cd "$(dirname "$0")/.."
"$python" -c 'import torch, sys; sys.exit(None if torch.cuda.is_available() else "no CUDA device: nothing to measure")'

part() { # name, command: runs it unless its output is there
    test -e "$out/$1.txt" && return
    echo "== $1"
    "${@:2}" | tee "$out/$1.part"
    mv "$out/$1.part" "$out/$1.txt"
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv | tee "$out/gpu.csv"
part tests "$python" -m pytest -q tests/gpu

for shape in qwen3-1.7b qwen3-8b; do
    "$python" pipelines/random_model.py "$shape" --out "$out/models/$shape"
    measure=("$python" pipelines/benchmark.py --config configs/demo.yaml --set "model=$out/models/$shape"
        --set engine.device=cuda --workload listings --limit 512)
    part "$shape-bf16" "${measure[@]}" ${vllm:+--vllm "$vllm" --vllm-block-size 16}
    part "$shape-bf16-continuous" "${measure[@]}" --only "transformers continuous batching"
    # Prefixes shared by matrix products instead of copied for the fused kernel.
    part "$shape-bf16-eager" "${measure[@]}" --only tree --set engine.attention=eager
    part "$shape-nf4" "${measure[@]}" --set engine.quantization=nf4 --only "transformers generate"
    part "$shape-profile" "${measure[@]}" --profile
    part "$shape-stack" "${measure[@]}" --sweep stack --out "$out/plots-$shape"
    part "$shape-single" "$python" pipelines/benchmark.py --config configs/demo.yaml \
        --set "model=$out/models/$shape" --set engine.device=cuda --workload single
done
