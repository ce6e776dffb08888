"""Measures what a quantization of the model costs in F1, on ExtractGPT's test sets, with the engine alone.

    python bench/quantization_quality.py DATA --out runs/quantization
    python bench/quantization_quality.py DATA --quantizations none --keep-in-bf16 down_proj --limit 60

DATA holds {oa-mine,ae-110k}.{train,test}.jsonl as published by ExtractGPT. Settings are those of
configs/extractgpt.yaml, in bfloat16 (--dtype), and scores those of `hpd evaluate` and `hpd compare`; neither Ray nor
DuckDB is needed. The table has a line for each set and quantization: F1, the difference to the first quantization of
the list with the interval of a paired bootstrap, the share of equal answers to all that was asked, and the time without
loading. On a CPU FP8 is emulated, with the numerics of a GPU.

`--keep-in-bf16 REGEX` adds FP8 in which the linear layers whose name has a match of REGEX stay in bfloat16. Names are
such as model.layers.0.mlp.down_proj.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import typer

from bench.gold_sets import CONFIG, Answered, GoldSet, compare, extract, figure, read_set, share_of_equal_answers
from hpd_core import Engine, EngineConfig, HPDError, ModelError
from hpd_core.config import DTypeName, Quantization
from hpd_core.layers import fp8
from hpd_core.models import loading
from hpd_core.models.weights import Weights
from hpd_core.system.threads import in_passing_thread
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.errors import RunError, UsageError
from pipelines.quality.scoring import Estimate

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_QUANTIZATIONS = ("none", *get_args(Quantization))
_WARM_UP = 16
"""Products that are extracted before the clock runs: kernels are compiled when they are first used."""
_HEAD = ("set", "quantization", "products", "F1 [95%]", "difference, paired [95%]", "same answers", "s", "products/s")


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to have the weights: `quantization` as the engine knows it; of FP8, what is `kept` in bfloat16."""

    quantization: Quantization | None
    kept: re.Pattern[str] | None = None

    @property
    def name(self) -> str:
        """How the table calls it."""
        kept = "" if self.kept is None else f", {self.kept.pattern} in bf16"
        return f"{self.quantization or 'none'}{kept}"


def variants(quantizations: str, kept: Sequence[str]) -> list[Variant]:
    """What is measured: every name of the list, then FP8 once for each of the patterns `kept`. Raises `UsageError`."""
    names = list(dict.fromkeys(name.strip() for name in quantizations.split(",")))
    if unknown := [name for name in names if name not in _QUANTIZATIONS]:
        raise UsageError(f"--quantizations: no {unknown[0]!r}; there are {', '.join(_QUANTIZATIONS)}")
    patterns = []
    for text in kept:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise UsageError(f"--keep-in-bf16 {text!r} is no regular expression: {error}") from error
    plain: dict[str, Quantization | None] = {"none": None, **{name: name for name in get_args(Quantization)}}
    return [*(Variant(plain[name]) for name in names), *(Variant("fp8", pattern) for pattern in patterns)]


def load_engine(
    variant: Variant, model: str, adapter: str | None, device: str, dtype: DTypeName = "bfloat16"
) -> Engine:
    """The engine with the settings of the configuration. Raises `ModelError`, and `UsageError` for a bad pattern."""
    config = load_config(JobConfig, str(CONFIG)).engine.model_copy(
        update={"dtype": dtype, "device": device, "quantization": variant.quantization}
    )
    if variant.kept is None:
        return Engine.from_pretrained(model, config, adapter)
    kept, plain = variant.kept, config.model_copy(update={"quantization": None})
    return in_passing_thread(lambda: _load_mixed(kept, model, plain, adapter))


def _load_mixed(kept: re.Pattern[str], model: str, config: EngineConfig, adapter: str | None) -> Engine:
    """In FP8 but for the layers whose name matches; `config` is of the model as it is without FP8."""
    device = loading.resolve_device(config)
    if (reason := fp8.why_not(device, loading.resolve_dtype(config, device))) is not None:
        raise ModelError(f"FP8 cannot be had: {reason}")
    # The adapter is merged into what stays and what does not, as in plain FP8.
    weights = Weights.load(model, config, adapter)
    quantize_others(weights.model, kept, device)
    return Engine(weights.model, loading.load_tokenizer(model, config), weights.settings(config))


@torch.no_grad()
def quantize_others(model: Any, kept: re.Pattern[str], device: torch.device) -> None:
    """Puts the layers of `others` into FP8, in place. Raises as `others`, and `ModelError` for odd weights."""
    for name in others(model, kept, device):
        try:
            layer = fp8.Fp8Linear.from_linear(model.get_submodule(name), device)
        except ValueError as error:
            raise ModelError(f"the model cannot be had in FP8: {name}: {error}") from error
        model.set_submodule(name, layer)


def others(model: Any, kept: re.Pattern[str], device: torch.device) -> list[str]:
    """The linear layers of all decoder layers whose name has no match; the model may be on the device meta.

    Raises:
        ModelError: the model cannot be had in FP8.
        UsageError: no name has a match, or every one has.
    """
    names = fp8.decoder_linears(model, device)
    chosen = [name for name in names if not kept.search(name)]
    if len(chosen) in (0, len(names)):
        which = "all linear layers' names" if not chosen else "no linear layer's name"
        raise UsageError(f"--keep-in-bf16 {kept.pattern!r} matches {which}; they are such as {', '.join(names[:7])}")
    return chosen


def check(chosen: Sequence[Variant], model: str, device: str) -> None:
    """Raises as `others`, within seconds: before anything else is measured."""
    config = EngineConfig(device=device)
    for variant in chosen:
        if variant.kept is not None:
            others(loading.load_empty(model, config), variant.kept, loading.resolve_device(config))


def measure(
    sets: Sequence[GoldSet], chosen: Sequence[Variant], load: Callable[[Variant], Engine]
) -> Iterator[dict[str, Any]]:
    """A row of results for each variant and set, as they come; differences are to the first variant."""
    baseline: dict[str, Answered] = {}
    for variant in chosen:
        started = time.perf_counter()
        with load(variant) as engine:
            machine = _machine(engine) | {"load_seconds": time.perf_counter() - started}
            engine.extract(list(sets[0].records.values())[:_WARM_UP], sets[0].schemas)
            for gold_set in sets:
                answered = extract(engine, gold_set)
                first = baseline.setdefault(gold_set.name, answered)
                yield _row(gold_set, variant, first, answered) | machine
        del engine
        _free_memory()


def _row(gold_set: GoldSet, variant: Variant, first: Answered, answered: Answered) -> dict[str, Any]:
    rates, is_first = compare(gold_set, first, answered), first is answered
    return {
        "set": gold_set.name,
        "quantization": variant.name,
        "products": len(gold_set.gold),
        "given_up": sum(product.failed for product in answered.products.values()),
        "f1": asdict(rates.b.f1),
        "difference": None if is_first else asdict(rates.difference.f1),
        "same_answers": None if is_first else share_of_equal_answers(first, answered),
        "seconds": answered.seconds,
        "products_per_second": len(answered.products) / answered.seconds,
    }


def _machine(engine: Engine) -> dict[str, Any]:
    described: Mapping[str, Any] = engine.describe()
    return {key: described[key] for key in ("dtype", "attention", "layers", "device_name", "versions")}


def _free_memory() -> None:
    """What the last engine has held, before the next one asks how much there is."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _line(cells: Sequence[str]) -> str:
    # A pattern may have a bar in it, which would end the cell.
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _cells(row: Mapping[str, Any]) -> list[str]:
    first = row["difference"] is None
    return [
        *(row["set"], row["quantization"], str(row["products"])),
        figure(Estimate(**row["f1"]), ".3f"),
        "" if first else figure(Estimate(**row["difference"]), "+.3f"),
        "" if first else f"{row['same_answers']:.1%}",
        *(f"{row['seconds']:.1f}", f"{row['products_per_second']:.2f}"),
    ]


@app.command()
def main(
    data: Annotated[Path, typer.Argument(help="Folder with the sets' .train.jsonl and .test.jsonl.")],
    model: Annotated[str, typer.Option(help="As in a job's configuration: a name, a folder, a hub id.")] = "smollm2",
    adapter: Annotated[str, typer.Option(help="LoRA adapter; '' for none.")] = "adapters/smollm2-generalist",
    sets: Annotated[str, typer.Option(metavar="NAME,NAME,...", help="Test sets.")] = "oa-mine,ae-110k",
    quantizations: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help=f"Of {', '.join(_QUANTIZATIONS)}; compared with the first.")
    ] = "none,fp8",
    keep_in_bf16: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Also FP8 without these layers; can be repeated.")
    ] = None,
    device: Annotated[str, typer.Option(help="As engine.device.")] = "auto",
    dtype: Annotated[DTypeName, typer.Option(help="As engine.dtype: of all that is not quantized.")] = "bfloat16",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N products of each set.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; rows are added to its results.jsonl.")] = None,
) -> None:
    """Measure what a quantization costs in F1."""
    try:
        chosen = variants(quantizations, keep_in_bf16 or [])
        gold_sets = [read_set(data, name.strip(), limit) for name in dict.fromkeys(sets.split(","))]
        check(chosen, model, device)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        rows = measure(gold_sets, chosen, lambda variant: load_engine(variant, model, adapter or None, device, dtype))
        for number, row in enumerate(rows):
            if number == 0:
                typer.echo(f"{model}, {adapter or 'no adapter'}, {row['dtype']}, {row['device_name']}\n")
                typer.echo(f"{_line(_HEAD)}\n|{'---|' * len(_HEAD)}")
            typer.echo(_line(_cells(row)))
            if out is not None:
                with (out / "results.jsonl").open("a") as file:
                    kept = {"model": model, "adapter": adapter or None, "limit": limit, **row, "time": time.time()}
                    print(json.dumps(kept), file=file)
    except (HPDError, UsageError, RunError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    app()
