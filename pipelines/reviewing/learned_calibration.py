"""Calibration of finished runs (`hpd evaluate RUN --calibrate`, `--apply`): learned, written, and applied to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pipelines.errors import UsageError
from pipelines.job.named_models import beside
from pipelines.job.run_plan import find_finished
from pipelines.quality.answer_features import LabelledAnswer
from pipelines.quality.calibration_file import CALIBRATION_NAME, CalibratedModel, Calibration
from pipelines.quality.learning import learn
from pipelines.quality.run_answers import gold_answers, reviewed_answers
from pipelines.quality.run_confidence import Decider, NamedCalibration, RunAcceptance, RunConfidence
from pipelines.quality.score_tables import print_reliability
from pipelines.quality.scoring import Reliability, ReliabilityBin
from pipelines.reviewing.decided_run import DecidedRun, decide_run
from pipelines.store.folders import Folder, file_at
from pipelines.store.layer import Layer
from pipelines.store.no_run import read_schemas
from pipelines.store.texts_in_run import left_out_note


@dataclass(frozen=True, slots=True)
class CalibrationWishes:
    """Options of `hpd evaluate` with which it calibrates, of the same names; `gold`: one for each run, or none."""

    runs: Sequence[str]
    gold: Sequence[str]
    reviews: bool
    larger: bool
    out: str | None
    force: bool
    apply: bool
    calibration: str | None
    precision: float | None
    dry_run: bool

    @property
    def learns(self) -> bool:
        """Whether a calibration is to be learned; else one that is there is applied."""
        return bool(self.gold or self.reviews)

    def check(self) -> None:
        """Raise `UsageError` for options that contradict each other."""
        if self.gold and len(self.gold) != len(self.runs):
            raise UsageError(
                f"{len(self.runs)} runs and {len(self.gold)} gold files: name one --gold for each run, in its order"
            )
        if self.apply and len(self.runs) > 1:
            raise UsageError(
                "--apply is for one run; name it alone, with --calibration for what was learned from several"
            )
        if self.calibration is not None and self.learns:
            raise UsageError("--calibration is for --apply alone; where what is learned goes, --out says")
        if self.precision is not None and not 0 < self.precision < 1:
            raise UsageError(f"--precision {self.precision:g}: a number between 0 and 1 is needed, such as 0.95")


def calibrate_runs(console: Console, wishes: CalibrationWishes) -> dict[str, Any]:
    """Learn, apply, or both; print what was learned and decided. Return it as plain data for JSON.

    Raises `UsageError` as `learn_from_runs` and `apply_calibration`.
    """
    wishes.check()
    found: dict[str, Any] = {}
    learned, uri = None, wishes.calibration
    for run in wishes.runs if wishes.reviews else ():
        folder = Folder(run)
        for note in left_out_note(Layer.open(folder, read_schemas(folder)).left_out, run):
            console.print(f"Note: {note}", soft_wrap=True)
    if wishes.learns:
        learned = learn_from_runs(
            wishes.runs, wishes.gold, reviews=wishes.reviews, larger=wishes.larger, out=wishes.out
        )
        print_learned(console, learned, wishes.precision)
        if not wishes.dry_run:
            learned = learned.write(force=wishes.force)
        found["learned"], uri = learned.to_dict(wishes.precision), learned.place
        console.print(f"{'would be written' if wishes.dry_run else 'written'}: {uri}")
    if wishes.apply:
        used = learned.calibration if learned is not None else None
        (run,) = wishes.runs
        decided = apply_calibration(
            run, uri, used, wishes.precision, console, larger=wishes.larger, is_trial=wishes.dry_run
        )
        print_decided(console, decided, wishes.dry_run)
        found["applied"] = decided.to_dict()
    return found


@dataclass(frozen=True, slots=True)
class Learned:
    """A learned calibration, and the place for it."""

    calibration: Calibration
    place: str

    @property
    def reliability(self) -> Reliability:
        """Reliability of confidences of products that were not learned from."""
        about = self.calibration.about
        return Reliability(about["ece"]["after"], tuple(ReliabilityBin(**each) for each in about["reliability"]))

    def write(self, *, force: bool) -> Learned:
        """Write the file and return its content. If the same was learned before, the file stays unchanged.

        Raises `UsageError` if another calibration is there, unless `force`.
        """
        folder, name = file_at(self.place, "--out")
        if Path(self.place).is_dir():
            raise UsageError(f"--out {self.place} is a folder: name a file")
        data = self.calibration.to_json()
        if folder.create(name, data):
            return self
        if (kept := self._kept()) is not None:
            return replace(self, calibration=kept)
        if not force:
            raise UsageError(
                f"{self.place} is there: --out names another file, for --calibration and for `calibration` in the job; "
                "--force writes over it"
            )
        folder.write(name, data)
        return self

    def _kept(self) -> Calibration | None:
        """Return the file's calibration if it differs only in its date; else None."""
        try:
            kept = Calibration.read(self.place)
        except UsageError:
            return None
        about = {**self.calibration.about, "created_at": kept.about.get("created_at")}
        return kept if self.calibration.model_copy(update={"about": about}).hash == kept.hash else None

    def to_dict(self, precision: float | None) -> dict[str, Any]:
        """Return plain data for JSON."""
        accept = None if precision is None else Decider(self.calibration, precision).to_dict()
        return {"place": self.place, "hash": self.calibration.hash, **self.calibration.about, "accept": accept}


def learn_from_runs(
    runs: Sequence[str], gold: Sequence[str], *, reviews: bool, larger: bool, out: str | None
) -> Learned:
    """Learn from the answers of one model in finished runs.

    If earlier runs define an attribute differently, only the last definition is learned.

    Args:
        gold: a gold file for each run; may be empty.
        reviews: also use people's verdicts, which take precedence over gold.
        larger: use the larger model's answers of runs with a cascade.
        out: place of the file; None: beside the adapter of the first run.

    Raises `UsageError` for runs of different models, labels that do not belong to a run, or too few of them.
    """
    manifests = [find_finished(uri)[2] for uri in runs]
    models = [_model(uri, manifest, larger=larger) for uri, manifest in zip(runs, manifests, strict=True)]
    for uri, model in zip(runs, models, strict=True):
        if found := models[0].differences(model):
            raise UsageError(f"{runs[0]} and {uri} are not of one model: {'; '.join(found)}")
    place = out or _beside_adapter(manifests[0], larger=larger)
    labels: list[LabelledAnswer] = []
    sources = []
    for number, uri in enumerate(runs):
        given = gold_answers(uri, gold[number], models[number]) if gold else []
        said = reviewed_answers(uri, models[number]) if reviews else []
        known = {(each.product, each.pair) for each in said}
        labels += [*said, *(each for each in given if (each.product, each.pair) not in known)]
        sources.append(
            {"run": manifests[number]["run_id"], "gold": gold[number] if gold else None, "reviewed_values": len(said)}
        )
    learned_from = of_last_definition(labels)
    about = {"sources": sources, "labels_of_earlier_definitions": len(labels) - len(learned_from)}
    return Learned(learn(learned_from, models[0], about), place)


def of_last_definition(labels: Sequence[LabelledAnswer]) -> list[LabelledAnswer]:
    """Return the labels whose definition is the last one for their attribute."""
    last = {each.pair: each.definition for each in labels}
    return [each for each in labels if each.definition == last[each.pair]]


def _model(uri: str, manifest: Mapping[str, Any], *, larger: bool) -> CalibratedModel:
    cascade = manifest.get("cascade")
    if larger and cascade is None:
        raise UsageError(f"--larger: {uri} has no cascade")
    if cascade is not None and not larger:
        raise UsageError(
            f"{uri} has a cascade: of its first model only the surest answers are left. Calibrate that from a run "
            "without, or the larger model with --larger"
        )
    engine = manifest["engine"] if cascade is None else cascade["engine"]
    if engine.get("prompt_hash") is None or engine.get("model_id") is None:
        raise UsageError(f"{uri} does not say which model answered; it is of an older version")
    return CalibratedModel.of(engine)


def _beside_adapter(manifest: Mapping[str, Any], *, larger: bool) -> str:
    config = manifest["config"]["cascade"] if larger else manifest["config"]
    folder: str = config.get("adapter") or config["model"]
    if "://" not in folder and not Path(folder).is_dir():
        raise UsageError(
            f"--out is needed: {folder!r} is no folder here that a calibration could lie in. A job finds it with "
            "`calibration: FILE`"
        )
    return f"{folder.rstrip('/')}/{CALIBRATION_NAME}"


def apply_calibration(
    run: str,
    uri: str | None,
    calibration: Calibration | None,
    precision: float | None,
    console: Console,
    *,
    larger: bool = False,
    is_trial: bool,
) -> DecidedRun:
    """Set the run's confidences and decisions.

    Args:
        uri: place of the calibration; None: beside the run's adapter.
        larger: the calibration is for the larger model of the run's cascade, and is beside that model's adapter.
        calibration: its content, if already read.
        precision: None: as set in the run.

    Raises `UsageError` if there is no calibration, or it belongs to none of the run's models.
    """
    folder, _, manifest = find_finished(run)
    config, cascade = manifest["config"], manifest.get("cascade")
    if larger and cascade is None:
        raise UsageError(f"--larger: {run} has no cascade")
    beside_it = config["cascade"] if larger else config
    place = uri or beside(beside_it.get("adapter") or beside_it["model"])
    if place is None:
        raise UsageError(f"--calibration is needed: there is none beside the adapter of {run}")
    learned = calibration or Calibration.read(place)
    models = [CalibratedModel.of(each["engine"]) for each in (manifest, cascade) if each is not None]
    differences = [learned.model.differences(model) for model in models]
    if larger:
        differences[0] = differences[0] or ["--larger says that it is of the other model"]
    if all(differences):
        raise UsageError(f"{place} was learned from other answers than those of {run}: {'; '.join(differences[0])}")
    before = RunConfidence.read(folder) or RunConfidence()
    named = NamedCalibration(place, learned, is_named=uri is not None, of_larger=bool(differences[0]))
    # That of the run's other model stays.
    others = [each for each in before.calibrations if each.of_larger != named.of_larger]
    accept = before.accept if precision is None else RunAcceptance(precision)
    pair = sorted([named, *others], key=lambda each: each.of_larger)
    return decide_run(run, RunConfidence(tuple(pair), accept), console, is_trial=is_trial)


_MAX_SHOWN = 10


def print_learned(console: Console, learned: Learned, precision: float | None) -> None:
    """Print sample sizes, how well the confidences hold, and what can be promised."""
    about = learned.calibration.about
    labels, loss, ece = about["labels"], about["log_loss"], about["ece"]
    console.print(
        f"{labels['values']:,} labelled values of {labels['products']:,} products and {labels['attributes']:,} "
        f"attributes, {labels['right']:,} right; {about['curve']} curve, {about['folds']} folds"
    )
    if others := about["labels_of_earlier_definitions"]:
        console.print(f"  {others:,} more are left out: of attributes that the last run with them defines otherwise")
    console.print(
        f"  log loss {loss['before']:.3f} -> {loss['after']:.3f}, expected calibration error {ece['before']:.3f} -> "
        f"{ece['after']:.3f} (of products that were not learned from)"
    )
    print_reliability(console, "confidence", learned.reliability)
    if precision is not None:
        _print_promises(console, Decider(learned.calibration, precision), learned)


def _print_promises(console: Console, decider: Decider, learned: Learned) -> None:
    found = decider.to_dict()
    labels = learned.calibration.about["labels"]["values"]
    own = found["own"]
    taken = sum(each["labels"] for each in own) + (found["together"]["labels"] if found["together"] else 0)
    console.print(
        f"At a precision of {decider.precision:g}: {found['attributes_promised']} attributes have a threshold of their "
        f"own, {found['attributes_promised_together']} one together, of {found['attributes_labelled']} with labels; "
        f"{taken:,} of {labels:,} labelled values ({taken / labels:.0%}) would be accepted"
    )
    if found["together"]:
        console.print(f"  together: {_threshold(found['together'])}")
    for each in own[:_MAX_SHOWN]:
        console.print(f"  {each['category']} > {each['attribute']}: {_threshold(each)}")
    if len(own) > _MAX_SHOWN:
        console.print(f"  and {len(own) - _MAX_SHOWN} more")
    if not own and not found["together"]:
        console.print("  Nothing can be promised: every value is for review. More labels, or a lower precision, help")


def _threshold(promise: dict[str, float]) -> str:
    return (
        f"from {promise['confidence']:g} on, {promise['right']:,} of {promise['labels']:,} right (at least "
        f"{promise['at_least']:.3f})"
    )


def print_decided(console: Console, found: DecidedRun, is_trial: bool) -> None:
    """Print the changes of the run's answers."""
    verb = "would change" if is_trial else "changed"
    console.print(
        f"{found.num_values:,} values, {found.num_confident:,} with a confidence, {found.num_changed:,} answers "
        f"{verb}; {found.num_rewritten:,} of {found.num_parts:,} parts {'would be ' if is_trial else ''}written"
    )
    if found.decisions:
        console.print(f"  accept {found.decisions['accept']:,}, review {found.decisions['review']:,}")
