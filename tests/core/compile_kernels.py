"""Compiles what the engine launches on a GPU of some compute capability, where there is none: `python -m` it with 89.

Launches are recorded from the functions that make them, with tensors that have sizes and no memory; so blocks, warps
and stages are those that the code chooses there. Prints a JSON object for each kernel. Not with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from hpd_core.attention.step_tables import PROMPT_FIELDS, TILE_FIELDS, TOKEN_FIELDS
from hpd_core.attention.triton import Blocks, blocks_for
from hpd_core.attention.triton_step import TritonStep
from hpd_core.layers.triton_pointwise import add_norm, choose, gated, quantize
from hpd_core.native.linear import Norm

_NAMES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.float8_e4m3fn: "fp8e4nv",
}
_NUM_TOKENS = 1024


@dataclass(frozen=True)
class Launch:
    """A kernel and what it is launched with."""

    name: str
    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, int]


def recorded(name: str, function: Callable[[], Any]) -> Launch:
    """The one launch that `function` makes."""
    found = []

    def record(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
        options = {key: value for key, value in named.items() if key not in kernel.arg_names}
        given = dict(zip(kernel.arg_names, args, strict=False)) | {key: named[key] for key in named.keys() - options}
        found.append(Launch(name, kernel, given, options))

    before = JITFunction.run
    JITFunction.run = record
    try:
        function()
    finally:
        JITFunction.run = before
    [launch] = found
    return launch


def meta(*size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(*size, dtype=dtype, device="meta")


def step(kv_heads: int, blocks: Blocks, dtype: torch.dtype = torch.bfloat16) -> TritonStep:
    """A step whose tables have sizes alone."""
    tiles, prompts = meta(8, len(TILE_FIELDS), dtype=torch.int64), meta(8, len(PROMPT_FIELDS), dtype=torch.int64)
    tokens, numbers = meta(len(TOKEN_FIELDS), _NUM_TOKENS, dtype=torch.int64), meta(_NUM_TOKENS, dtype=torch.int64)
    origins = meta(64, dtype=dtype), meta(64, dtype=torch.int64)
    return TritonStep(tiles, prompts, tokens, numbers, numbers, 1 << 20, *origins, kv_heads, blocks)


def attention(
    capability: int,
    name: str,
    kv_heads: int,
    group: int,
    size: int,
    dtype: torch.dtype,
    *,
    small_steps: bool = False,
    **options: Any,
) -> Launch:
    """Of queries as the fused projection leaves them."""
    heads = meta(_NUM_TOKENS, (group + 2) * kv_heads, size, dtype=dtype)
    q = heads[:, : group * kv_heads]
    blocks = blocks_for(divmod(capability, 10), size, size, dtype, small_steps=small_steps)
    out = meta(*q.shape, dtype=dtype)
    return recorded(f"attention {name}", lambda: step(kv_heads, blocks, dtype).attend(3, q, out, scale=0.1, **options))


def storing(name: str, kv_heads: int, group: int, size: int, *, rotates: bool) -> Launch:
    """The same, on the way to the cache."""
    heads = meta(_NUM_TOKENS, (group + 2) * kv_heads, size)
    q, k, v = heads.split([group * kv_heads, kv_heads, kv_heads], dim=1)
    weight, angles = meta(size), meta(_NUM_TOKENS, size)
    norms, here = (Norm(weight, 1e-6), Norm(weight, 1e-6)), step(kv_heads, blocks_for((9, 0), size, size, q.dtype))
    if not rotates:
        return recorded(f"store {name}", lambda: here.store(3, q, k, v))
    return recorded(f"rotate and store {name}", lambda: here.rotate_and_store(3, q, k, v, angles, angles, norms))


def launches(capability: int) -> list[Launch]:
    """All kernels, of models that are used."""
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    x, norm, both = meta(_NUM_TOKENS, 4096), Norm(meta(4096), 1e-6), meta(_NUM_TOKENS, 2 * 12_288)
    logits, numbers = meta(_NUM_TOKENS, 151_936), meta(_NUM_TOKENS, dtype=torch.int64)
    scores = meta(_NUM_TOKENS, dtype=fp32)
    found = [
        attention(capability, "of Qwen3-8B", 8, 4, 128, bf16),
        attention(capability, "of Qwen3-1.7B", 8, 2, 128, bf16),
        attention(capability, "of Qwen3-8B in small steps", 8, 4, 128, bf16, small_steps=True),
        attention(capability, "of gpt-oss", 8, 8, 64, bf16, window=128, sinks=meta(64)),
        attention(capability, "of Gemma 2", 4, 2, 256, fp16, window=4096, softcap=50.0),
        attention(capability, "in fp32", 2, 7, 64, fp32),
        attention(capability, "in fp32, wide", 2, 1, 256, fp32, window=9, softcap=50.0),
        storing("of Qwen3-8B", 8, 4, 128, rotates=True),
        storing("of Gemma 2", 4, 2, 256, rotates=True),
        storing("of gpt-oss", 8, 8, 64, rotates=False),
        recorded("note", lambda: step(8, blocks_for((9, 0), 128, 128, bf16)).note()),
        recorded("norm", lambda: add_norm(x, x, norm)),
        recorded("SiLU gate", lambda: gated(both)),
        recorded("GELU gate", lambda: gated(both, is_gelu=True)),
        recorded(
            "choose",
            lambda: choose(
                *(
                    logits,
                    numbers,
                    meta(64, 300, dtype=torch.int64),
                    numbers,
                    meta(4, logits.shape[1], dtype=torch.bool),
                ),
                *(numbers, scores, scores, numbers),
            ),
        ),
    ]
    if capability >= 89:
        found += [
            recorded("norm to FP8", lambda: add_norm(x, x, norm, to_fp8=True)),
            recorded("SiLU gate to FP8", lambda: gated(both, to_fp8=True)),
            recorded("GELU gate to FP8", lambda: gated(both, is_gelu=True, to_fp8=True)),
            recorded("SiLU gate to FP8 of Llama 3.1 70B", lambda: gated(meta(_NUM_TOKENS, 2 * 28_672), to_fp8=True)),
            recorded("quantize of Llama 3.1 70B", lambda: quantize(meta(_NUM_TOKENS, 28_672))),
        ]
    return found


def compiled(launch: Launch, capability: int) -> Any:
    """As Triton compiles at such a launch, of tensors that begin at multiples of 16 bytes."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for place, parameter in enumerate(launch.kernel.params):
        name, value = parameter.name, launch.arguments[parameter.name]
        is_free = not parameter.do_not_specialize
        is_aligned = is_free and not parameter.do_not_specialize_on_alignment
        if parameter.is_constexpr or (isinstance(value, int) and value == 1 and is_free):
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, Tensor):
            signature[name] = f"*{_NAMES[value.dtype]}"
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
            is_aligned = is_aligned and isinstance(value, int) and value % 16 == 0
        if signature[name] != "constexpr" and is_aligned:
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=launch.options)


def assembled(ptx: str, capability: int) -> tuple[int, int]:
    """Registers of a thread, and bytes that are spilt, by the assembler that Triton brings along."""
    folder = Path(triton.__file__).parent / "backends/nvidia/bin"
    architecture = f"sm_{capability}a" if capability >= 90 else f"sm_{capability}"
    said = ""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        # The plain one may be older than what Triton writes.
        for assembler in ("ptxas-blackwell", "ptxas"):
            if (folder / assembler).exists():
                command = [folder / assembler, "-v", f"--gpu-name={architecture}", file.name, "-o", "/dev/null"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                said += done.stderr
                if done.returncode == 0:
                    registers = re.findall(r"Used (\d+) registers", done.stderr)
                    spilt = re.findall(r"(\d+) bytes spill stores", done.stderr)
                    return max(map(int, registers)), sum(map(int, spilt))
    raise RuntimeError(f"cannot be assembled: {said}")


def main(capability: int) -> None:
    for launch in launches(capability):
        kernel = compiled(launch, capability)
        ptx = kernel.asm["ptx"]
        registers, spilt = assembled(ptx, capability)
        facts = {
            "name": launch.name,
            "shared": kernel.metadata.shared,
            "registers": registers,
            "spilt": spilt,
            "threads": kernel.metadata.num_warps * 32,
            "uses tensor cores": any(name in ptx for name in ("mma.sync", "wgmma", "tcgen05.mma")),
            "copies 16 bytes ahead": bool(
                re.search(r"cp\.async\.c[ag]\.shared\.global \[[^]]*\], \[[^]]*\], 0x10", ptx)
            ),
            "loads 16 bytes": bool(re.search(r"ld\.global(\.\w+)*\.v(4\.b32|2\.b64)", ptx)),
            "stores 16 bytes": bool(re.search(r"st\.global(\.\w+)*\.v(4\.b32|2\.b64)", ptx)),
        }
        print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
