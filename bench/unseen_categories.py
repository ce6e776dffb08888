"""Measures what a recipe of fine-tuning is worth on categories that it was not trained on, and how few labels mend it.

    python bench/unseen_categories.py DATA --out runs/unseen --recipe today
    python bench/unseen_categories.py DATA --out runs/unseen --recipe lora --set method=lora --set optimizer.epochs=3
    python bench/unseen_categories.py DATA --out runs/unseen --recipe today --few 10,30,100,300
    python bench/unseen_categories.py DATA --out runs/unseen --recipe small-steps --few-from today --few 10,30 \
        --few-set optimizer.documents_per_step=4

DATA holds {oa-mine,ae-110k}.{train,test}.jsonl as published by ExtractGPT. Each set has ten categories. A fold trains
one model on seven of each set, by configs/finetune-extractgpt.yaml and what `--set` changes in it, and answers the
whole test sets: `unseen` are the products of the three others, `seen` the rest. There are three folds, no category is
unseen in two of them. `--few` goes on from a fold's model with so many products of one of its unseen categories (the
first of each set, or `--few-categories` of them), and answers that category's test products; with `--few-from` it goes
on from another recipe's models, and trains none for a fold.

Killed, the same command goes on; what is finished is not done again. Under OUT/RECIPE there is a folder for each model
and a file of answers for each test. The tables are of all that OUT holds:

    F1 [95%]   exact match, micro, of all folds together; a bootstrap over products
    change     against the first recipe (`--against`), paired over the products that both have answered, of one seed
    categories seen and unseen by the fold's model; few: unseen ones that some labels were given of, before and after
    made up    of the attributes labelled absent, how many got a value (AE-110k alone has such labels)
    minutes    of training, one model, on this machine
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from bench.gold_sets import CONFIG, GoldSet, extract, figure, read_set
from hpd_core import Engine, HPDError
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.errors import RunError, UsageError
from pipelines.evaluating.examples import paired_rates
from pipelines.quality.evaluation import judge_products
from pipelines.quality.run_answers import RowKey, RunProduct
from pipelines.quality.scoring import Answer, AnswerJudgement, Comparison, bootstrap, count, estimate_rates

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_ROOT = Path(__file__).resolve().parent.parent
_SETS = ("oa-mine", "ae-110k")
_NUM_FOLDS, _UNSEEN_IN_FOLD = 3, 3
_FOLDS_SEED, _DRAW_SEED = 7, 11
_FEW = ("validation.share=0", "optimizer.epochs=6")
"""From few labels: none is held out, since a share of ten is none."""
_HEAD = (
    "recipe",
    "set",
    "categories",
    "labels of each",
    "seeds",
    "products",
    "F1 [95%]",
    "change",
    "made up",
    "minutes",
)

Answers = dict[str, dict[str, tuple[str, list[str]]]]
"""By row of a test file and attribute: status and items."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How models are trained: `settings` in configs/finetune-extractgpt.yaml, from few labels `few` as well."""

    name: str
    settings: Sequence[str]
    few: Sequence[str]
    max_train: int | None


@dataclass(frozen=True)
class Data:
    """ExtractGPT's sets, and the folds of their categories."""

    folder: Path
    limit: int | None

    @cached_property
    def sets(self) -> Mapping[str, GoldSet]:
        """The test sets, with all their categories."""
        return {name: read_set(self.folder, name, self.limit) for name in _SETS}

    @cached_property
    def lines(self) -> Mapping[str, Mapping[str, Sequence[str]]]:
        """Of each training set the lines of each category, in an order that is drawn once for all."""
        found: dict[str, dict[str, list[str]]] = {}
        for name in _SETS:
            lines = (self.folder / f"{name}.train.jsonl").read_text("utf-8").splitlines()
            by_category: dict[str, list[str]] = defaultdict(list)
            for line in lines:
                by_category[json.loads(line)["category"]].append(line)
            for category, own in sorted(by_category.items()):
                random.Random(f"{_DRAW_SEED} {category}").shuffle(own)
            found[name] = by_category
        return found

    def unseen(self, name: str, fold: int) -> list[str]:
        """The categories of a set that the models of a fold are not trained on."""
        categories = sorted(self.lines[name])
        random.Random(_FOLDS_SEED).shuffle(categories)
        return categories[fold * _UNSEEN_IN_FOLD : (fold + 1) * _UNSEEN_IN_FOLD]


@dataclass(frozen=True)
class Study:
    """One recipe's models and answers, under one folder."""

    data: Data
    recipe: Recipe
    out: Path

    def run_fold(self, fold: int, seed: int) -> Path:
        """Trains a fold's model and answers the test sets with it, unless that was done. Returns the model's folder."""
        folder = self.out / self.recipe.name / f"fold-{fold}-seed-{seed}"
        train = {
            name: [
                line
                for category, lines in self.data.lines[name].items()
                if category not in self.data.unseen(name, fold)
                for line in lines
            ]
            for name in _SETS
        }
        if self.recipe.max_train is not None:
            train = {name: _drawn(lines, self.recipe.max_train // len(_SETS)) for name, lines in train.items()}
        minutes = self._train(folder, train, seed, self.recipe.settings)
        for name in _SETS:
            about = {
                "fold": fold,
                "seed": seed,
                "num_labels": 0,
                "minutes": minutes,
                "unseen": self.data.unseen(name, fold),
            }
            self._answer(folder, name, self.data.sets[name], about)
        return folder / "run" / "model"

    def model_of(self, recipe: str, fold: int, seed: int) -> Path:
        """The folder of a fold's model that another recipe has trained. Raises `UsageError` where there is none."""
        model = self.out / recipe / f"fold-{fold}-seed-{seed}" / "run" / "model"
        if not model.exists():
            raise UsageError(f"--few-from: {recipe} has no model of fold {fold} and seed {seed}: train it first")
        return model

    def run_few(self, fold: int, seed: int, model: Path, sizes: Sequence[int], num_categories: int) -> None:
        """Goes on from a fold's model with few labels of categories that it does not know."""
        is_whole = (model / "config.json").exists()
        start = f"model={model}" if is_whole else f"adapter={model}"
        for name in _SETS:
            for category in self.data.unseen(name, fold)[:num_categories]:
                own = self.data.lines[name][category]
                for size in sorted({min(size, len(own)) for size in sizes}):
                    folder = self.out / self.recipe.name / f"fold-{fold}-seed-{seed}-{_plain(category)}-{size}"
                    settings = [*self.recipe.settings, *_FEW, *self.recipe.few, start]
                    minutes = self._train(folder, {name: own[:size]}, seed, settings)
                    about = {"fold": fold, "seed": seed, "num_labels": size, "minutes": minutes, "unseen": [category]}
                    self._answer(folder, name, _only(self.data.sets[name], category), about)

    def _train(self, folder: Path, train: Mapping[str, Sequence[str]], seed: int, settings: Sequence[str]) -> float:
        """Minutes of the training, which goes on where it was killed."""
        done = folder / "minutes.json"
        if done.exists():
            return float(json.loads(done.read_text()))
        folder.mkdir(parents=True, exist_ok=True)
        datasets = []
        for name, lines in train.items():
            path = folder / f"{name}.train.jsonl"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            schemas = self.out / f"{name}.yaml"
            if not schemas.exists():
                _command(
                    "schema.py",
                    "import",
                    str(self.data.folder / f"{name}.train.jsonl"),
                    "--plain",
                    "--out",
                    str(schemas),
                )
            catalog = {"path": str(path), "fields": {"title": "input"}}
            datasets.append({"gold": str(path), "schemas": str(schemas), "input": catalog})
        started = time.perf_counter()
        wanted = [f"datasets={json.dumps(datasets)}", f"output={folder / 'run'}", f"seed={seed}", *settings]
        config = str(_ROOT / "configs" / "finetune-extractgpt.yaml")
        _command("finetune.py", "--config", config, *(part for each in wanted for part in ("--set", each)))
        minutes = (time.perf_counter() - started) / 60
        shutil.rmtree(folder / "run" / "_checkpoints", ignore_errors=True)
        done.write_text(json.dumps(minutes))
        return minutes

    def _answer(self, folder: Path, name: str, gold_set: GoldSet, about: Mapping[str, Any]) -> None:
        """Writes what the folder's model says of a test set, unless that was done."""
        path = folder / f"{name}.answers.json"
        if path.exists():
            return
        model = folder / "run" / "model"
        base = next(
            (each.removeprefix("model=") for each in self.recipe.settings if each.startswith("model=")), "smollm2"
        )
        source, adapter = (str(model), None) if (model / "config.json").exists() else (base, str(model))
        config = load_config(JobConfig, str(CONFIG)).engine
        with Engine.from_pretrained(source, config, adapter) as engine:
            answered = extract(engine, gold_set)
        answers: Answers = {
            str(row): {attribute: (answer.status, list(answer.items)) for attribute, answer in product.answers.items()}
            for row, product in answered.products.items()
        }
        content = {"recipe": self.recipe.name, "set": name, "seconds": answered.seconds, "answers": answers, **about}
        path.write_text(json.dumps(content), encoding="utf-8")


def _drawn(lines: Sequence[str], count: int) -> list[str]:
    """So many of the lines, of all parts alike."""
    step = max(1.0, len(lines) / count)
    return [lines[int(number * step)] for number in range(min(count, len(lines)))]


def _plain(category: str) -> str:
    return category.lower().replace(" ", "-")


def _only(gold_set: GoldSet, category: str) -> GoldSet:
    gold = {row: product for row, product in gold_set.gold.items() if product.category == category}
    return replace(gold_set, rows=[row for row in gold_set.rows if row.number in gold], gold=gold)


def _command(script: str, *arguments: str) -> None:
    finished = subprocess.run([sys.executable, str(_ROOT / "pipelines" / script), *arguments], check=False)
    if finished.returncode:
        raise RunError(f"{script} ended with code {finished.returncode}; the same command goes on")


@dataclass(frozen=True, slots=True)
class Cell:
    """The judgements of one line of the table, by seed, fold and row: those that two recipes have are compared."""

    products: Mapping[tuple[int, int, int], Sequence[AnswerJudgement]]
    minutes: float

    def in_order(self, keys: Sequence[tuple[int, int, int]]) -> list[AnswerJudgement]:
        """Of these products alone, numbered in this order."""
        return [replace(each, product=number) for number, key in enumerate(keys) for each in self.products[key]]


def read_cells(data: Data, out: Path) -> dict[tuple[str, str, str, int], Cell]:
    """All that was answered under `out`: by recipe, set, part and number of labels.

    A part is 'unseen' or 'seen', or 'few': the unseen categories that some labels were given of, before and after.
    """
    products: dict[tuple[str, str, str, int], dict[tuple[int, int, int], list[AnswerJudgement]]] = defaultdict(dict)
    minutes: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    contents = [json.loads(path.read_text("utf-8")) for path in sorted(out.glob("*/*/*.answers.json"))]
    few = {(each["set"], each["fold"], name) for each in contents if each["num_labels"] for name in each["unseen"]}
    for content in contents:
        gold_set = data.sets[content["set"]]
        keys = set()
        for row, gold in gold_set.gold.items():
            if str(row) not in content["answers"]:
                continue
            product = _product(gold_set, row, content["answers"][str(row)])
            judged = judge_products([0], [gold], {0: product}, Comparison.EXACT)
            parts = {"unseen" if gold.category in content["unseen"] else "seen"}
            if (content["set"], content["fold"], gold.category) in few:
                parts = {*parts, "few"} if content["num_labels"] == 0 else {"few"}
            for part in parts:
                key = (content["recipe"], content["set"], part, content["num_labels"])
                products[key][content["seed"], content["fold"], row] = judged
                keys.add(key)
        for key in keys:
            minutes[key].append(content["minutes"])
    return {key: Cell(own, sum(minutes[key]) / len(minutes[key])) for key, own in products.items()}


def _product(gold_set: GoldSet, row: int, answers: Mapping[str, tuple[Any, list[str]]]) -> RunProduct:
    category = gold_set.gold[row].category
    product = RunProduct(RowKey(gold_set.name, row), None, category, not answers)
    product.asked = {attribute.name: attribute for attribute in gold_set.schemas[category].attributes}
    product.answers = {name: Answer(status, tuple(items)) for name, (status, items) in answers.items()}
    return product


def table(cells: Mapping[tuple[str, str, str, int], Cell], against: str) -> Iterator[str]:
    """The lines of the table, in Markdown; `change` is against the recipe `against`."""
    yield f"| {' | '.join(_HEAD)} |"
    yield f"|{'---|' * len(_HEAD)}"
    for (recipe, name, part, num_labels), cell in sorted(cells.items(), key=lambda each: (each[0][1:], each[0][0])):
        keys = sorted(cell.products)
        judged = cell.in_order(keys)
        counts = count(each.outcome for each in judged)
        own = estimate_rates(counts.rates, bootstrap(judged, len(keys)).micro).f1
        made_up = counts.hallucination_rate
        other, change = cells.get((against, name, part, num_labels)), ""
        if other is not None and recipe != against and (both := sorted(cell.products.keys() & other.products.keys())):
            rates = paired_rates(Comparison.EXACT, other.in_order(both), cell.in_order(both), len(both))
            change = figure(rates.difference.f1, "+.3f")
        seeds = Counter(seed for seed, _, _ in keys)
        yield (
            f"| {recipe} | {name} | {part} | {num_labels} | {len(seeds)} | {len(keys)} | {figure(own, '.3f')} "
            f"| {change} | {'-' if made_up is None else f'{made_up:.3f}'} | {cell.minutes:.1f} |"
        )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]


@app.command()
def main(
    data: Annotated[Path, typer.Argument(help="Folder with the sets' .train.jsonl and .test.jsonl.")],
    out: Annotated[Path, typer.Option(help="Folder of models, answers and tables.")],
    recipe: Annotated[str | None, typer.Option(help="Name of what is trained; none: print the tables.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Of the fine-tuning; can be repeated.")
    ] = None,
    few_settings: Annotated[
        list[str] | None, typer.Option("--few-set", metavar="KEY=VALUE", help="Of those from few labels, beside --set.")
    ] = None,
    folds: Annotated[str, typer.Option(metavar="N,N,...", help="Which of the folds 0, 1 and 2.")] = "0,1,2",
    seeds: Annotated[str, typer.Option(metavar="N,N,...", help="One model a fold for each.")] = "0",
    few: Annotated[str, typer.Option(metavar="N,N,...", help="Numbers of labels to go on with.")] = "",
    few_from: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="Go on from the models of that recipe, and train none.")
    ] = None,
    few_categories: Annotated[int, typer.Option(min=1, max=3, help="Unseen categories of each set that get them.")] = 1,
    max_train: Annotated[int | None, typer.Option(min=2, help="Train a fold on so many products alone.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N products of each test set.")] = None,
    against: Annotated[str, typer.Option(help="The recipe that changes are counted from.")] = "today",
) -> None:
    """Train on seven categories of each set, and test on the others."""
    try:
        sets = Data(data, limit)
        out = out.absolute()
        if recipe is not None:
            chosen = Recipe(recipe, settings or [], few_settings or [], max_train)
            _keep(chosen, out / recipe / "recipe.json")
            study = Study(sets, chosen, out)
            for seed in _numbers(seeds):
                for fold in _numbers(folds):
                    if not 0 <= fold < _NUM_FOLDS:
                        raise UsageError(f"--folds: there is no fold {fold}; there are 0 to {_NUM_FOLDS - 1}")
                    model = study.model_of(few_from, fold, seed) if few_from else study.run_fold(fold, seed)
                    study.run_few(fold, seed, model, _numbers(few), few_categories)
        for line in table(read_cells(sets, out), against):
            typer.echo(line)
    except (HPDError, UsageError, RunError, OSError, ValueError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None


def _keep(recipe: Recipe, path: Path) -> None:
    """Writes what the recipe is; another one of this name is refused."""
    content = json.dumps(asdict(recipe), indent=1)
    if path.exists() and path.read_text("utf-8") != content:
        raise UsageError(f"{path} has other settings under this name: {path.read_text('utf-8')}; take another --recipe")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    app()
