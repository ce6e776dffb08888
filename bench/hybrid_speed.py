"""Times a model with layers beside attention on this CPU against transformers' generate: processor time of one thread.

    python bench/hybrid_speed.py                    a third of the layers of Qwen3.5-0.8B's size, random weights
    python bench/hybrid_speed.py --layers 24 --documents 32

Random tokens for texts and keys, values of a given length. `generate` writes keys and values one behind the other,
which is what it takes to get the same answer from it, and computes the prefix for every document. Processor time is
counted, which neighbours on the machine distort least.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import torch
import transformers
import typer

from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach, own_attention
from hpd_core.text.endings import Endings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_VOCABULARY = 8000
_PREFIX, _KEY, _VALUE, _NUM_KEYS = 200, 3, 6, 10


def model_of(num_layers: int) -> Any:
    """Random weights in bfloat16: three layers with a gated delta rule before each one with attention."""
    config = transformers.Qwen3_5TextConfig(
        vocab_size=_VOCABULARY,
        hidden_size=1024,
        intermediate_size=3584,
        num_hidden_layers=num_layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=16,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def ours(model: Any, prefix: list[int], documents: list[list[int]], keys: list[list[int]]) -> float:
    """Seconds a document."""
    attach(model)
    config = EngineConfig(max_draft_tokens_per_step=0)
    decoder = Decoder(model, Endings.none(_VOCABULARY), config, cache_shape(model))

    def run(texts: list[list[int]]) -> float:
        branches = [Branch(key, _VALUE) for key in keys]
        decoder.add([Prompt(tree_layout(prefix, text, branches), "prefix") for text in texts])
        started = time.process_time()
        while decoder.has_work:
            decoder.step()
        return (time.process_time() - started) / len(texts)

    run(documents[:1])  # packs weights
    return run(documents)


@torch.inference_mode()
def generated(model: Any, prefix: list[int], documents: list[list[int]]) -> float:
    """Seconds a document, all in one batch. Documents are cut to the shortest: nothing is padded."""
    length = min(map(len, documents))
    batch = torch.tensor([prefix + document[:length] for document in documents])
    count = _NUM_KEYS * (_KEY + _VALUE)
    with own_attention(model):
        started = time.process_time()
        model.generate(batch, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
        return (time.process_time() - started) / len(documents)


@app.command()
def main(
    layers: Annotated[int, typer.Option(help="Layers, a multiple of 4; the published model has 24.")] = 8,
    documents: Annotated[int, typer.Option(help="Documents of 60 to 140 tokens, with ten values each.")] = 8,
) -> None:
    """Time the engine and transformers' generate on a model of Qwen3.5-0.8B's size."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)

    def tokens(count: int) -> list[int]:
        return [int(token) for token in rng.integers(3, _VOCABULARY, count)]

    prefix, keys = tokens(_PREFIX), [tokens(_KEY) for _ in range(_NUM_KEYS)]
    texts = [tokens(int(rng.integers(60, 140))) for _ in range(documents)]
    model = model_of(layers)
    engine, generate = ours(model, prefix, texts, keys), generated(model, prefix, texts)
    typer.echo(f"engine    {engine:.2f} s of one thread a document")
    typer.echo(f"generate  {generate:.2f} s ({generate / engine:.1f} times as much)")


if __name__ == "__main__":
    app()
