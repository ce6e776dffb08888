"""Who gets a threshold of its own, who shares one, and who none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipelines.quality.answer_features import KINDS, NUMBERS, Score
from pipelines.quality.calibration_file import (
    THRESHOLDS,
    CalibratedModel,
    Calibration,
    LabelledAttribute,
    Taken,
)
from pipelines.quality.run_confidence import Decider, NamedCalibration, RunConfidence
from tests.pipelines.quality.made_answers import MODEL, made_calibration
from tests.tables import table

SCORE = Score(
    intercept=0.0,
    numbers={name: float(name == "log_odds") for name in NUMBERS},
    kinds={name: {} for name in KINDS},
    attributes={},
)


def attribute(num: int, right: int, definition: str = "d") -> LabelledAttribute:
    """Half of its values have a confidence of 0.9, which the right ones have first; the others one of 0.5."""
    upper = Taken(num // 2, min(right, num // 2))
    steps = (Taken(0, 0) if low > 0.9 else upper if low > 0.5 else Taken(num, right) for low in THRESHOLDS)
    return LabelledAttribute(definition=definition, taken=tuple(steps))


def calibration(**attributes: LabelledAttribute) -> Calibration:
    return made_calibration(MODEL, SCORE, {"Shoes": attributes})


def test_an_attribute_with_enough_labels_has_its_own_threshold_or_none() -> None:
    decider = Decider(calibration(good=attribute(400, 400), fair=attribute(400, 300), bad=attribute(400, 100)), 0.9)
    assert decider.promises["Shoes", "good"].confidence == 0.5, "below, no label was seen"
    assert decider.promises["Shoes", "fair"].confidence == 0.9
    assert ("Shoes", "bad") not in decider.promises
    assert decider.decide("Shoes", "fair", "value", 0.9) == "accept"
    assert decider.decide("Shoes", "fair", "value", 0.8999) == "review"
    assert decider.decide("Shoes", "bad", "value", 1.0) == "review"


def test_attributes_with_few_labels_share_one_that_those_with_many_have_no_part_in() -> None:
    rare = {f"r{number}": attribute(20, 20) for number in range(10)}
    decider = Decider(calibration(**rare, bad=attribute(400, 100)), 0.9)
    assert {pair for pair, each in decider.promises.items() if each.is_pooled} == {("Shoes", name) for name in rare}
    assert decider.promises["Shoes", "r0"].taken == Taken(200, 200)


def test_another_attribute_of_its_name_is_promised_nothing() -> None:
    decider = Decider(calibration(good=attribute(400, 400, "d")), 0.9)
    assert decider.decide("Shoes", "good", "value", 1.0, "d") == "accept"
    assert decider.decide("Shoes", "good", "value", 1.0, "other") == "review"


def test_a_catalog_without_labels_is_promised_what_held_in_each_of_the_others() -> None:
    good, fair, bad = (attribute(400, right).taken for right in (400, 300, 100))

    def decider(*catalogs: tuple[Taken, ...]) -> Decider:
        made = made_calibration(MODEL, SCORE)
        known = {str(number): steps for number, steps in enumerate([good, good, *catalogs])}
        return Decider(made.model_copy(update={"catalogs": known}), 0.9)

    assert decider(good, good, good).decide("Unseen", "Brand", "value", 0.5, "d") == "accept"
    assert decider(good, good, fair).decide("Unseen", "Brand", "value", 0.5, "d") == "review"
    assert decider(good, good, fair).decide("Unseen", "Brand", "value", 0.9, "d") == "accept"
    assert decider(good, good, bad).decide("Unseen", "Brand", "value", 1.0, "d") == "review"
    assert "nothing can be promised" in decider(good, good).note_on_unseen(), "four catalogs are too few"


@table(("status", "decision"), [("absent", None), ("truncated", "review"), ("invalid", "review"), ("error", "review")])
def test_what_is_no_value_is_for_review_unless_the_text_does_not_state_it(status: str, decision: str | None) -> None:
    assert Decider(calibration(good=attribute(400, 400)), 0.9).decide("Shoes", "good", status, None) == decision


def named(whose: CalibratedModel, *, is_named: bool) -> NamedCalibration:
    return NamedCalibration("c.json", made_calibration(whose, SCORE), is_named)


@table(
    "change",
    [
        *({"decoding": "ar"}, {"layout": "stacked"}, {"quantization": "int8"}, {"max_scored_tokens": 0}),
        {"document_attention": "bidirectional"},
    ],
)
def test_answers_that_were_decoded_otherwise_are_another_models(change: dict[str, Any]) -> None:
    other = replace(MODEL, **change)
    assert MODEL.differences(other)
    assert RunConfidence((named(MODEL, is_named=False),)).notes(other)


def test_what_was_learned_of_all_answers_holds_above_a_threshold_and_not_the_reverse() -> None:
    above = replace(MODEL, answer_threshold=0.4)
    assert not MODEL.differences(above)
    assert above.differences(MODEL) == ["answer_threshold 0.4 there, None here"]
    assert above.differences(replace(MODEL, answer_threshold=0.3))
