"""Learning of a calibration from finished runs: the model, the labels, and the place of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.confidence.calibration_file import CALIBRATION_NAME, CalibratedModel, Calibration
from pipelines.confidence.decider import Decider
from pipelines.confidence.labelled_answer import LabelledAnswer
from pipelines.confidence.learning import learn
from pipelines.confidence.reliability import Reliability, ReliabilityBin
from pipelines.errors import UsageError
from pipelines.job.run_plan import find_finished
from pipelines.quality.labelled_answers import gold_answers, reviewed_answers
from pipelines.store.folders import file_at


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
        return kept if replace(self.calibration, about=about).hash == kept.hash else None

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
