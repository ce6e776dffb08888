"""Scores a run against gold values, compares two, calibrates, or has a model judge.

    hpd evaluate runs/demo --gold sample/gold.jsonl
    hpd evaluate runs/monday runs/tuesday --out runs/changes
    hpd evaluate runs/shop --gold gold.jsonl --calibrate --out shop.json
    hpd evaluate runs/shop --apply --calibration shop.json --precision 0.95
    hpd evaluate runs/demo --judge http://localhost:8000/v1 --judge-set model=qwen --limit 200
    hpd evaluate runs/seed-0 runs/seed-1 --gold labels.train.jsonl --recheck --out kept.jsonl

Two runs are compared: settings, rows, answers, quality, cost and speed; they may still be going. --calibrate learns
from labelled products how probable it is that answers are right, and --apply fills `confidence` and `decision` of a
finished run without a model; killed, the same command continues (docs/trust.md). --recheck lists the labels that
all runs contradict alike (docs/fine-tune.md). A judge asks a model about the values (docs/quality.md).

Runs and files may be local paths or any fsspec URI. What is counted, and how, is in docs/quality.md. Exit code: 0 done,
1 stopped or not written (disk, rights), 2 usage (no such file, a folder that is no run, gold that does not belong to
the run, too few labels); of a judge: 4 stopped at max_cost_usd, 3 some products got no answer.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from pipelines.console.exit_codes import EXIT_CLEAN, run_command
from pipelines.console.terminal import FoldedMarkdown, data_console, printable
from pipelines.errors import UsageError
from pipelines.evaluating.comparison import MAX_EXAMPLES, compare_runs
from pipelines.evaluating.pages import render_markdown, write_pages
from pipelines.quality.doubtful_labels import recheck_labels
from pipelines.quality.evaluation import evaluate_run
from pipelines.quality.gold import read_lines
from pipelines.quality.gold_split import without_doubtful
from pipelines.quality.score_tables import print_brief, print_evaluation, print_rechecked
from pipelines.quality.scoring import Comparison
from pipelines.reviewing.learned_calibration import CalibrationWishes, calibrate_runs
from pipelines.store.folders import file_at

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_MAX_LISTED = 20
_SEED = 0
_LEARNED = {"gold", "reviews", "larger", "out", "force", "apply", "calibration", "precision", "dry_run"}
_OPTIONS = {
    "the score of one run": {"gold", "comparison", "by_attribute", "brief"},
    "a comparison of two runs": {"gold", "out", "limit", "seed"},
    "--recheck": {"gold", "out", "limit", "recheck"},
    "--calibrate": {"calibrate", *_LEARNED},
    "--apply": {"apply", "calibration", "precision", "larger", "dry_run"},
    "--judge": {
        *("gold", "comparison", "by_attribute", "brief", "out", "limit", "seed"),
        *("judge", "judge_set", "judge_cache"),
    },
}
"""Options that each kind of work takes, beside --json."""


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def evaluate(
    context: typer.Context,
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="output folder of a run; of two to compare them")],
    gold: Annotated[
        list[str] | None,
        typer.Option(help="gold file: ours or ExtractGPT's JSON Lines; to calibrate by several runs, one for each"),
    ] = None,
    comparison: Annotated[
        Comparison, typer.Option(help="'folded' adds scores that ignore case and white space")
    ] = Comparison.EXACT,
    by_attribute: Annotated[bool, typer.Option("--by-attribute", help="print every attribute")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="print three lines, no tables")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
    out: Annotated[
        str | None,
        typer.Option(
            help="what to write: the folder of a comparison's pages, the calibration (by default calibration.json "
            "beside the run's adapter), the gold without doubtful labels, the judge's verdicts"
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="differences or doubtful labels to show, products to judge")
    ] = None,
    seed: Annotated[int, typer.Option(help="of the draw of these products or differences")] = _SEED,
    recheck: Annotated[bool, typer.Option("--recheck", help="list the labels that all runs contradict alike")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="learn how probably answers are right, by --gold or --reviews")
    ] = False,
    reviews: Annotated[bool, typer.Option("--reviews", help="learn from what people said of the runs, too")] = False,
    larger: Annotated[
        bool, typer.Option("--larger", help="of a run with a cascade: its larger model's answers")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="write over a calibration that is there")] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="fill confidence and decision of the run; alone, by --calibration")
    ] = False,
    calibration: Annotated[
        str | None, typer.Option(help="with --apply alone: the file; by default that beside the run's adapter")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="the share of accepted values that has to be right, such as 0.95"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be written, write nothing")] = False,
    judge: Annotated[
        str | None, typer.Option(help="a model judges: its endpoint (http://.../v1), or a YAML file that says")
    ] = None,
    judge_set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="a key of the judge, such as model; may be repeated")
    ] = None,
    judge_cache: Annotated[
        str | None, typer.Option(help="local file of the judge's answers, if not in the run's folder")
    ] = None,
) -> None:
    """Does what the options ask for, prints it, and exits."""
    learns = calibrate or reviews
    kinds = {"--recheck": recheck, "--calibrate": learns, "--apply": apply and not learns, "--judge": judge is not None}
    asked = [name for name, is_asked in kinds.items() if is_asked]

    def work() -> int:
        if len(asked) > 1:
            raise UsageError(f"{' and '.join(asked)} are two kinds of work: ask for one at a time")
        kind = asked[0] if asked else "the score of one run" if len(runs) == 1 else "a comparison of two runs"
        _refuse_others(context, kind)
        of_runs = _one_gold(gold) if kind not in ("--calibrate", "--apply") else None
        if kind == "--recheck":
            return _recheck(runs, of_runs, limit, out, as_json)
        if kind == "--calibrate" and not (gold or reviews):
            raise UsageError("--calibrate: name what to learn from (--gold FILE, --reviews)")
        if kind in ("--calibrate", "--apply"):
            wishes = CalibrationWishes(
                *(runs, gold or [], reviews, larger, out, force, apply, calibration, precision, dry_run)
            )
            found = calibrate_runs(Console(markup=False, highlight=False, emoji=False), wishes)
            if as_json:
                typer.echo(json.dumps(found))
            return EXIT_CLEAN
        if kind == "a comparison of two runs":
            return _compare(runs, of_runs, out, MAX_EXAMPLES if limit is None else limit, seed, as_json)
        if len(runs) > 1:
            raise UsageError(f"{len(runs)} runs are judged one at a time: name one")
        if of_runs is None and judge is None:
            raise UsageError("name --gold FILE, --judge ENDPOINT, or a second run to compare with")
        # Product text is data: brackets in it are no markup. Without a terminal, tables are not squeezed to 80.
        console = Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 140)
        summary = {}
        if of_runs is not None:
            evaluation = evaluate_run(runs[0], of_runs, comparison=comparison)
            summary = evaluation.summary()
            print_brief(console, evaluation) if brief else print_evaluation(console, evaluation, by_attribute)
        if judge is not None:
            # Imported here: who has no judge does without its client.
            from pipelines.evaluating.asking import judge_config
            from pipelines.evaluating.judge_run import judge_and_print

            asked_of = judge_config(judge, judge_set or (), "--judge")
            beside = summary if as_json else None
            options = {"limit": limit, "seed": seed, "cache": judge_cache, "out": out}
            return judge_and_print(console, runs[0], asked_of, of_runs, by_attribute, beside, **options)
        if as_json:
            typer.echo(json.dumps(summary, ensure_ascii=False))
        return EXIT_CLEAN

    run_command(work)


def _refuse_others(context: typer.Context, kind: str) -> None:
    """Raise `UsageError` for an option that would have no effect."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    if others := sorted(given - _OPTIONS[kind] - {"runs", "as_json"}):
        names = " and ".join(f"--{name.replace('_', '-')}" for name in others)
        raise UsageError(f"{names}: not an option of {kind}; leave it out (hpd evaluate --help)")


def _one_gold(gold: list[str] | None) -> str | None:
    if gold is not None and len(gold) > 1:
        raise UsageError("one --gold FILE is needed; several are for --calibrate, one for each run")
    return gold[0] if gold else None


def _compare(runs: list[str], gold: str | None, out: str | None, limit: int, seed: int, as_json: bool) -> int:
    """Print what changed from the first run to the second."""
    if len(runs) > 2:
        raise UsageError(f"{len(runs)} runs: two are compared; more are for --calibrate and --recheck")
    try:
        found = compare_runs(*runs, gold=gold, max_examples=limit, seed=seed)
        written = write_pages(found, out) if out is not None else []
    except OSError as error:
        raise UsageError(str(error)) from error
    console = data_console()
    console.print(FoldedMarkdown(render_markdown(found)))
    for place in written:
        console.print(f"  {place}", soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    return EXIT_CLEAN


def _recheck(runs: list[str], gold: str | None, limit: int | None, out: str | None, as_json: bool) -> int:
    """Compare the labels with the runs, print what they contradict, and write the rest."""
    if gold is None:
        raise UsageError("--recheck needs --gold FILE, the labels")
    lines = read_lines(gold)
    found = recheck_labels(runs, gold, lines)
    if out is not None:
        _write(out, b"\n".join(without_doubtful(lines, found.doubtful, gold)))
    console = data_console()
    print_rechecked(console, found, len(runs), _MAX_LISTED if limit is None else limit)
    if out is not None:
        console.print(f"Without them: {printable(out)}", soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(found.summary(), ensure_ascii=False))
    return EXIT_CLEAN


def _write(place: str, data: bytes) -> None:
    """Write the file. Raises `UsageError` if it exists with other content, because a gold file may hold work."""
    folder, name = file_at(place, "--out")
    try:
        is_other = not folder.create(name, data) and folder.read(name) != data
    except (IsADirectoryError, NotADirectoryError, FileExistsError, FileNotFoundError) as error:
        raise UsageError(f"--out {place}: no file can be written there: {error.strerror or error}") from error
    if is_other:
        raise UsageError(f"--out {place} is there and holds other lines; name another file, or move it away")
