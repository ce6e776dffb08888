"""Measures what a step takes on its way through layers beside attention on this CPU, against what the engine reckons.

    python bench/hybrid_memory.py
    python bench/hybrid_memory.py --tokens 2048

Two layers of each kind's usual size, random weights in bfloat16, a step of eight documents. Bytes of a token: the most
that the process had above what it kept, and `activation_bytes`, by which the size of steps is fitted to memory.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import psutil
import torch
import transformers
import typer

from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.memory import activation_bytes
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.mixers.families import Mixers
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.endings import Endings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_VOCABULARY = 8000
_NUM_DOCUMENTS, _NUM_KEYS = 8, 8
_COMMON = {"vocab_size": _VOCABULARY, "num_hidden_layers": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BOTH = {"layer_types": ["linear_attention", "full_attention"]}

MODELS: dict[str, Callable[[], Any]] = {
    "Qwen3.5 0.8B": lambda: transformers.Qwen3_5TextConfig(
        **_COMMON,
        **_BOTH,
        hidden_size=1024,
        intermediate_size=3584,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=16,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
    ),
    "Granite 4 H, 1,536": lambda: transformers.GraniteMoeHybridConfig(
        **_COMMON,
        **_BOTH,
        hidden_size=1536,
        intermediate_size=2048,
        shared_intermediate_size=2048,
        num_attention_heads=12,
        num_key_value_heads=4,
        num_local_experts=0,
        mamba_n_heads=48,
        mamba_d_head=64,
        mamba_n_groups=1,
        mamba_d_state=128,
        mamba_chunk_size=256,
    ),
    "Kimi Linear, 2,304": lambda: transformers.KimiLinearConfig(
        **_COMMON,
        **_BOTH,
        hidden_size=2304,
        intermediate_size=4096,
        num_attention_heads=32,
        num_key_value_heads=32,
        linear_num_heads=32,
        linear_head_dim=128,
        num_experts=4,
        num_experts_per_token=2,
        moe_intermediate_size=512,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    ),
    "Mamba, 1,536": lambda: transformers.MambaConfig(**_COMMON, hidden_size=1536, state_size=16),
}


class Peak:
    """The most memory that the process has while it is entered."""

    def __enter__(self) -> Peak:
        self._process = psutil.Process()
        self.most = self.first = int(self._process.memory_info().rss)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.002):
            self.most = max(self.most, int(self._process.memory_info().rss))


def measure(name: str, num_tokens: int) -> tuple[int, int]:
    """Bytes of a token in a step of so many: reckoned, and measured."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(MODELS[name](), dtype=torch.bfloat16).eval()
    attach(model)
    shape = cache_shape(model)
    config = EngineConfig(max_draft_tokens_per_step=0, max_tokens_per_step=num_tokens)
    decoder = Decoder(model, Endings.none(_VOCABULARY), config, shape)
    rng = np.random.default_rng(0)

    def prompt(size: int) -> Prompt:
        text, *keys = ([int(token) for token in rng.integers(3, _VOCABULARY, n)] for n in (size, *[3] * _NUM_KEYS))
        return Prompt(tree_layout([], text, [Branch(key, 4) for key in keys]), ())

    decoder.add([prompt(50)])  # packs weights
    while decoder.has_work:
        decoder.step()
    size = num_tokens // _NUM_DOCUMENTS - 3 * _NUM_KEYS
    decoder.add([prompt(size) for _ in range(_NUM_DOCUMENTS)])
    with Peak() as peak:
        decoder.step()
    kept = decoder.pool.num_used * shape.dtype.itemsize
    mixers = Mixers.of(model)
    reckoned = activation_bytes(model, shape, () if mixers is None else mixers.shapes)
    return reckoned, (peak.most - peak.first - kept) // num_tokens


@app.command()
def main(tokens: Annotated[int, typer.Option(min=512, help="Of the step.")] = 1024) -> None:
    """Measure the memory of a step."""
    typer.echo("| model | reckoned, bytes a token | measured |\n|---|--:|--:|")
    # Each in a process of its own: what one model has given back would be there for the next.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn, max_tasks_per_child=1) as processes:
        for name in MODELS:
            reckoned, measured = processes.submit(measure, name, tokens).result()
            typer.echo(f"| {name} | {reckoned:,} | {measured:,} |")


if __name__ == "__main__":
    app()
