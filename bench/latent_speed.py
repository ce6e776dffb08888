"""Times multi-head latent attention on this CPU by what is kept of a token: latents, or keys and values.

    python bench/latent_speed.py                    attention of DeepSeek-V2-Lite's size, 3 layers, bfloat16
    python bench/latent_speed.py --dtype float32 --document 1200

Random weights, random tokens for texts and keys, values of a given length. MLPs are dense and as wide as the experts
that a token goes through, so that time is spent as in the published model, whichever code runs experts. Processor time
of one thread is counted, which neighbours on the machine distort least. `same` are the tokens that are those of the
first line: with random weights many are near ties, and half precision rounds the forms differently.
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
from hpd_core.attention.dispatch import Way
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.endings import Endings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_VOCABULARY = 8000
_KEY = 3
_CONTENDERS: tuple[tuple[str, Way], ...] = (
    ("keys and values", "native"),
    ("keys and values", "eager"),
    ("latents", "native"),
    ("latents", "eager"),
)


def model_of(num_layers: int, dtype: torch.dtype) -> Any:
    """Random weights."""
    config = transformers.DeepseekV2Config(
        vocab_size=_VOCABULARY,
        hidden_size=2048,
        intermediate_size=8 * 1408,  # 6 experts of 64, and 2 that all tokens go through
        num_hidden_layers=num_layers,
        first_k_dense_replace=num_layers,
        num_attention_heads=16,
        num_key_value_heads=16,
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


class Contender:
    """The engine with one kind of cache and one way to attend."""

    def __init__(self, model: Any, kept: str, way: Way) -> None:
        shape = cache_shape(model)
        shape = shape if kept == "latents" else shape.with_keys_and_values()
        config = EngineConfig(attention=way, max_draft_tokens_per_step=0)
        self._decoder = Decoder(model, Endings.none(_VOCABULARY), config, shape)
        self.bytes_per_token = shape.numbers_per_token // shape.num_layers * shape.dtype.itemsize
        self.seconds = np.inf

    def run(self, prompts: list[Prompt]) -> list[int]:
        """All tokens of all values; the best time counts."""
        self._decoder.add(prompts)
        started = time.thread_time()
        while self._decoder.has_work:
            self._decoder.step()
        self.seconds = min(self.seconds, time.thread_time() - started)
        return [token for prompt in prompts for value in prompt.tokens for token in value]


@app.command()
def main(
    layers: Annotated[int, typer.Option(help="Layers; the published model has 27.")] = 3,
    dtype: Annotated[str, typer.Option(help="bfloat16 or float32")] = "bfloat16",
    documents: Annotated[int, typer.Option(help="Documents.")] = 4,
    prefix: Annotated[int, typer.Option(help="Tokens of the prefix that all share.")] = 300,
    document: Annotated[int, typer.Option(help="Tokens of a document.")] = 300,
    values: Annotated[int, typer.Option(help="Values of a document.")] = 16,
    length: Annotated[int, typer.Option(help="Tokens of a value.")] = 8,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds, of which the best counts.")] = 3,
) -> None:
    """Print a line for each kind of cache and way to attend."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)

    def tokens(count: int) -> list[int]:
        return [int(token) for token in rng.integers(3, _VOCABULARY, count)]

    begin, texts = tokens(prefix), [tokens(document) for _ in range(documents)]
    branches = [Branch(tokens(_KEY), length) for _ in range(values)]
    layouts = [tree_layout(begin, text, branches) for text in texts]
    model = model_of(layers, getattr(torch, dtype))
    attach(model)
    contenders = {each: Contender(model, *each) for each in _CONTENDERS}
    answers: dict[Any, list[int]] = {}
    for _ in range(repeats + 1):  # the first packs weights and computes the prefix
        for name, contender in contenders.items():
            answers[name] = contender.run([Prompt(layout, "prefix") for layout in layouts])
    first = next(iter(answers.values()))
    for (kept, way), contender in contenders.items():
        same = np.mean([a == b for a, b in zip(answers[kept, way], first, strict=True)])
        typer.echo(
            f"{kept:16}{way:8}{contender.bytes_per_token:8,} bytes a token and layer  "
            f"{len(first) / contender.seconds:8.1f} tokens/s of values  {same:4.0%} same"
        )


if __name__ == "__main__":
    app()
