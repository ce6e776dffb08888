"""Times a model with layers beside attention on this CPU: the engine, a floor below it, transformers' generate, vLLM.

    python bench/hybrid_speed.py                    a third of the layers of Qwen3.5-0.8B's size, random weights
    python bench/hybrid_speed.py --layers 24 --documents 16 --vllm .venv-rivals/bin/python
    python bench/hybrid_speed.py --long 3000        one long document among the others; the engine alone

Random tokens for texts and keys, values of a given length. `generate` and `vLLM AR` write keys and values one behind
the other, which is what it takes to get the same answer from them; `vLLM fan-out` is a request for each value.
`generate` computes the prefix for every document. Processor time of one thread, which neighbours on the machine distort
least; beside it seconds on the clock, which is all that is known of vLLM. The floor is the matrix products of the
engine's tokens alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import torch
import transformers
import typer

from bench.rivals.vllm_process import VllmProcess
from bench.rivals.vllm_requests import Requests
from bench.speed.ceilings import Floor, Work, rows_of_large_steps
from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.mixers.families import Mixers
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach, own_attention
from hpd_core.text.endings import Endings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_VOCABULARY = 8000
_PREFIX, _KEY, _VALUE, _NUM_KEYS = 200, 3, 6, 10
_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of all documents: of the processor, and on the clock."""

    processor: float
    clock: float

    @classmethod
    def of(cls, run: Callable[[], Any]) -> Seconds:
        """How long `run` takes."""
        started = time.process_time(), time.perf_counter()
        run()
        return cls(time.process_time() - started[0], time.perf_counter() - started[1])


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be decoded: token ids."""

    prefix: list[int]
    documents: list[list[int]]
    keys: list[list[int]]

    @classmethod
    def random(cls, num_documents: int, long: int) -> Case:
        """Documents of 60 to 140 tokens, and one of `long` if that is not 0."""
        rng = np.random.default_rng(0)

        def tokens(count: int) -> list[int]:
            return [int(token) for token in rng.integers(3, _VOCABULARY, count)]

        prefix, keys = tokens(_PREFIX), [tokens(_KEY) for _ in range(_NUM_KEYS)]
        sizes = [int(rng.integers(60, 140)) for _ in range(num_documents)] + [long] * (long > 0)
        return cls(prefix, [tokens(size) for size in sizes], keys)


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


@dataclass(frozen=True, slots=True)
class Ours:
    """What the engine took, and the tokens of each of its steps; `num_read`: states of documents that steps read."""

    seconds: Seconds
    tokens: list[int]
    num_logits: int
    num_read: int


def ours(model: Any, case: Case) -> Ours:
    """Decodes all documents with the engine."""
    attach(model)
    config = EngineConfig(max_draft_tokens_per_step=0)
    decoder = Decoder(model, Endings.none(_VOCABULARY), config, cache_shape(model))
    steps: list[list[int]] = []

    def run(texts: list[list[int]]) -> None:
        branches = [Branch(key, _VALUE) for key in case.keys]
        decoder.add([Prompt(tree_layout(case.prefix, text, branches), "prefix") for text in texts])
        while decoder.has_work:
            fed = [count for cohort in decoder.step().cohorts for _, count in cohort]
            steps.append([count for count in fed if count])

    run(case.documents[:1])  # packs weights
    steps.clear()
    seconds = Seconds.of(lambda: run(case.documents))
    num_logits = len(case.documents) * len(case.keys) * _VALUE
    return Ours(seconds, [sum(fed) for fed in steps], num_logits, sum(map(len, steps)))


def floor_of(model: Any, run: Ours) -> Seconds:
    """The matrix products of the engine's tokens, with the model's weights."""
    floor = Floor(model, rows_of_large_steps(run.tokens))
    floor.run(Work(1, 1))
    return Seconds.of(lambda: floor.run(Work(sum(run.tokens), run.num_logits)))


@torch.inference_mode()
def generated(model: Any, case: Case) -> Seconds:
    """By transformers, all in one batch. Documents are cut to the shortest: nothing is padded."""
    length = min(map(len, case.documents))
    batch = torch.tensor([case.prefix + document[:length] for document in case.documents])
    count = _NUM_KEYS * (_KEY + _VALUE)
    lengths = {"max_new_tokens": count, "min_new_tokens": count}
    with own_attention(model):
        return Seconds.of(lambda: model.generate(batch, **lengths, do_sample=False, pad_token_id=0))


def by_vllm(model: Any, case: Case, python: str) -> dict[str, float]:
    """Seconds on the clock of each way to ask vLLM, with random weights of its own."""
    trunks = [case.prefix + document for document in case.documents]
    asked = [trunk + key for trunk in trunks for key in case.keys]
    runs = {
        "vLLM AR": Requests(trunks, [_NUM_KEYS * (_KEY + _VALUE)] * len(trunks)),
        "vLLM fan-out": Requests(asked, [_VALUE] * len(asked)),
    }
    with tempfile.TemporaryDirectory() as folder:
        model.config.architectures = ["Qwen3_5ForCausalLM"]
        model.config.save_pretrained(folder)
        options = {"load_format": "dummy", "skip_tokenizer_init": True}
        process = VllmProcess(python, folder, "bfloat16", runs, _BLOCK_SIZE, options=options, num_warm=_NUM_KEYS)
    try:
        return {name: process.run(name).seconds for name in runs}
    finally:
        process.close()


def _say_work(model: Any, run: Ours, floor: Seconds) -> None:
    weights = sum(part.weight.numel() for part in model.model.modules() if isinstance(part, torch.nn.Linear))
    head = model.get_output_embeddings().weight.numel()
    operations = 2 * (weights * sum(run.tokens) + head * run.num_logits)
    mixers = Mixers.of(model)
    assert mixers is not None
    state = sum(shape.bytes_per_state for shape in mixers.shapes)
    typer.echo(
        f"{sum(run.tokens)} tokens in {len(run.tokens)} steps: {operations / 1e9:.0f} G operations of matrix products, "
        f"{run.num_read * state / 1e9:.1f} GB of states read; {run.seconds.processor / floor.processor:.1f} floors"
    )


@app.command()
def main(
    layers: Annotated[int, typer.Option(help="Layers, a multiple of 4; the published model has 24.")] = 8,
    documents: Annotated[int, typer.Option(help="Documents of 60 to 140 tokens, with ten values each.")] = 8,
    long: Annotated[int, typer.Option(help="Tokens of one document more; the engine alone is timed.")] = 0,
    vllm: Annotated[str | None, typer.Option(help="The Python of an environment that has vLLM.")] = None,
) -> None:
    """Time the engine and others on a model of Qwen3.5-0.8B's size."""
    torch.set_num_threads(1)
    case, model = Case.random(documents, long), model_of(layers)

    def say(name: str, seconds: Seconds) -> None:
        count = len(case.documents)
        typer.echo(
            f"{name:<13}{seconds.processor / count:>8.3f} s of one thread a document, {seconds.clock:.1f} s in all"
        )

    run = ours(model, case)
    say("engine", run.seconds)
    floor = floor_of(model, run)
    say("floor", floor)
    _say_work(model, run, floor)
    if not long:
        say("generate", generated(model, case))
    if vllm:
        for name, whole in by_vllm(model, case, vllm).items():
            each = whole / len(case.documents)
            typer.echo(f"{name:<13}{each:>8.3f} s of one thread on the clock a document, {whole:.1f} s in all")


if __name__ == "__main__":
    app()
