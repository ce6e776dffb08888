"""Times steps of a fine-tuning on this CPU, beside the same model trained on dense rows, and the matrix products alone.

    python bench/training_speed.py --config configs/finetune-extractgpt.yaml
    python bench/training_speed.py --config configs/finetune-extractgpt.yaml --set method=lora --steps 5 --threads 2

`dense` is forward and backward of transformers' model by torch's own kernels, over as many tokens and targets, in rows
as long as the examples and with no optimizer; `products` are the matrix products of those tokens, forward and backward,
and nothing else. All three are timed in turns, step by step. Processor time, which neighbours on the machine distort
least; beside it seconds on the clock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import torch.nn.functional as F
import typer

from hpd_core.training import native_linear
from hpd_core.training.examples import Example
from hpd_core.training.loss import ATTENTION_NAME
from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.loading import load_config
from pipelines.training.course import Course
from pipelines.training.optimizer_step import Stepper

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@dataclass(slots=True)
class Times:
    """Of the steps so far, in seconds: of the processor, and on the clock."""

    processor: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)

    def add(self, run: Callable[[], Any]) -> None:
        """One step more."""
        started = time.process_time(), time.perf_counter()
        run()
        self.processor.append(time.process_time() - started[0])
        self.clock.append(time.perf_counter() - started[1])


@dataclass(frozen=True, slots=True)
class Size:
    """Of a pack: examples, tokens (those of the shared prefix once) and targets."""

    num_examples: int
    num_tokens: int
    num_targets: int

    @classmethod
    def of(cls, pack: Sequence[Example]) -> Size:
        """`pack`: examples with one prefix."""
        num_tokens = pack[0].num_prefix_tokens + sum(example.num_own_tokens for example in pack)
        return cls(len(pack), num_tokens, sum(example.num_targets for example in pack))


def dense(model: Any, size: Size) -> None:
    """Forward and backward of rows as long as the examples, by transformers and torch."""
    ids = torch.randint(0, model.config.vocab_size, (size.num_examples, size.num_tokens // size.num_examples))
    num_targets = max(1, size.num_targets // size.num_examples)
    model.set_attn_implementation("sdpa")
    try:
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=num_targets).logits.flatten(0, 1)
        F.cross_entropy(logits.float(), ids[:, :num_targets].flatten()).backward()  # type: ignore[no-untyped-call]
    finally:
        model.set_attn_implementation(ATTENTION_NAME)
        model.zero_grad()


@torch.no_grad()
def products(model: Any, size: Size) -> None:
    """The products of the linear layers: forward, gradient of the input, and of the weight where it learns."""
    head = model.get_output_embeddings()
    for module in model.modules():
        if not isinstance(module, torch.nn.Linear):
            continue
        weight = module.weight
        rows = size.num_targets if module is head else size.num_tokens
        x, gradient = weight.new_empty(rows, weight.shape[1]), weight.new_empty(rows, weight.shape[0])
        F.linear(x, weight)
        gradient @ weight
        if weight.requires_grad and native_linear.takes(weight):
            native_linear.weight_gradient(gradient, x)
        elif weight.requires_grad:
            gradient.t() @ x


def _each(run: Callable[[Any, Size], None], model: Any, sizes: Sequence[Size]) -> None:
    for size in sizes:
        run(model, size)


def timed(course: Course, num_steps: int) -> tuple[dict[str, Times], int]:
    """Of the first steps but one, which warms up; and how many tokens they have."""
    model, stepper = course.trained.model, Stepper(course, 0, 1)
    times = {name: Times() for name in ("steps", "dense", "products")}
    num_tokens = 0
    for number, step in enumerate(course.first_epoch[: num_steps + 1]):
        sizes = [Size.of(pack) for pack in step.packs[0]]
        runs: dict[str, Callable[[], Any]] = {
            "steps": partial(stepper.take, step, number),
            "dense": partial(_each, dense, model, sizes),
            "products": partial(_each, products, model, sizes),
        }
        for name, run in runs.items():
            (times[name] if number else Times()).add(run)
        num_tokens += sum(size.num_tokens for size in sizes) if number else 0
    return times, num_tokens


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def training_speed(
    config: Annotated[str, typer.Option(help="the fine-tuning's YAML file")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a key of the file; may be repeated")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="steps to time, behind a first one")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="of torch")] = 1,
) -> None:
    """Times a fine-tuning's steps, dense rows and matrix products."""
    torch.set_num_threads(threads)
    times, num_tokens = timed(Course.load(load_config(FinetuneConfig, config, overrides or []), typer.echo), steps)
    typer.echo(f"{steps} steps of {num_tokens} tokens, {threads} threads")
    for name, found in times.items():
        processor, clock = sum(found.processor), sum(found.clock)
        share = processor / sum(times["products"].processor)
        typer.echo(
            f"{name:<9}{num_tokens / processor * threads:>8.0f} tokens/s by processor time, "
            f"{num_tokens / clock:>6.0f} on the clock; {share:.2f} times the products"
        )


if __name__ == "__main__":
    app()
