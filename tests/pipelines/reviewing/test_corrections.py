"""What verdicts come to: the last word counts, differences are known, agreement is what the books say it is."""

from __future__ import annotations

import pytest

from hpd_core import Attribute, Unit
from pipelines.store.corrections import agreement, settle
from pipelines.store.verdicts import ItemError, checked_items, number_forms
from tests.pipelines.reviewing.said import verdict
from tests.tables import table

WEIGHT = Attribute(name="Weight", type="number", unit=Unit(want="g"))
HEIGHT = Attribute(name="Height", type="number", unit=Unit(want="cm"))
ROAST = Attribute.model_validate(
    {"name": "Roast", "type": "enum", "multiple": True, "values": [{"label": "dark", "synonyms": ["french"]}, "light"]}
)


def test_the_last_word_counts_and_who_differs_is_known() -> None:
    first, second = (
        verdict(0, "Ada", "correct", items=["Acme  Corp"]),
        verdict(1, "Bob", "correct", items=["acme corp"]),
    )
    (same,) = settle([first, second]).values()
    assert (same.verdict.reviewer, same.items, same.is_disputed) == ("Bob", ("acme corp",), False)
    (other,) = settle([first, second, verdict(2, "Ada", "absent")]).values()
    assert (other.verdict.reviewer, other.verdict.answer.status, other.is_disputed) == ("Ada", "absent", True)
    assert other.is_corrected
    assert [each.reviewer for each in other.others] == ["Bob"]


def test_who_skips_an_answer_that_they_judged_does_not_know_any_more() -> None:
    bobs = verdict(1, "Bob", "correct", items=["Velor"])
    (found,) = settle([verdict(0), bobs, skipped := verdict(2, kind="skip")]).values()
    assert (found.items, found.others) == (("Velor",), ())
    assert settle([verdict(0), skipped]) == {}
    (again,) = settle([verdict(0), skipped, verdict(3, kind="undo", undoes=skipped.id)]).values()
    assert again.is_accepted


@table(
    ("seen", "forms", "written", "is_other"),
    [
        ("2.2", ["997.903214 g"], "2.2 lb", False),
        ("250.0", ["250 g"], "0.25 kg", False),
        ("2.2", ["2.2 g"], "2.2 lb", True),
        ("6.0", [], "6.0 lb", False),
        ("6.0", [], "7 lb", True),
    ],
)
def test_numbers_are_compared_in_the_attributes_unit(seen: str, forms: list[str], written: str, is_other: bool) -> None:
    answer = {"status": "value", "items": [seen], "forms": forms}
    (item,) = checked_items(WEIGHT, [written])
    said = verdict(0, kind="correct", items=[item], forms=number_forms(WEIGHT, [item]), seen=answer)
    (found,) = settle([verdict(0, "Bob", seen=answer), said]).values()
    assert (found.is_corrected, found.is_disputed) == (is_other, is_other)


def test_agreement_is_cohens_kappa_of_whether_the_model_is_right() -> None:
    """20 right by both, 5 by Ada alone, 10 by Bob alone, 15 by neither: the book's example, 0.4."""
    said = []
    for number, (ada, bob) in enumerate([(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15):
        for name, is_right in (("Ada", ada), ("Bob", bob)):
            said.append(verdict(number, name, "accept" if is_right else "absent", source_row=number))
    found = agreement(said)
    assert (found.pairs, found.same, found.share) == (50, 35, 0.7)
    assert found.kappa == pytest.approx(0.4)
    assert agreement([verdict(0)]).share is None
    assert agreement([verdict(0), verdict(1, "Bob")]).kappa is None, "all say the same: chance gives that, too"


@table(
    ("attribute", "items", "found"),
    [
        (WEIGHT, ["500"], ("500 g",)),
        (WEIGHT, [" 1,5 kg "], ("1.5 kg",)),
        (WEIGHT, ["400-500 g"], ("400-500 g",)),
        (WEIGHT, ["10-12"], ("10-12 g",)),
        (WEIGHT, ["up to 5"], ("up to 5 g",)),
        (Attribute(name="Rings", type="number", unit=Unit(want="rings")), ["½"], ("0.5 rings",)),
        (Attribute(name="Pieces", type="number"), ["12 pieces"], ("12",)),
        (Attribute(name="Vegan", type="boolean"), ["Yes"], ("true",)),
        (Attribute(name="Best before", type="date"), ["1 May 2027"], ("2027-05-01",)),
        (ROAST, ["FRENCH", "light", "Dark"], ("dark", "light")),
        (Attribute(name="Brand"), ["  Acme & Söhne "], ("Acme & Söhne",)),
    ],
)
def test_an_item_gets_the_form_of_the_attributes_answers(
    attribute: Attribute, items: list[str], found: tuple[str, ...]
) -> None:
    assert checked_items(attribute, items) == found


@table(
    ("attribute", "items", "said"),
    [
        (WEIGHT, ["heavy"], "'heavy' is no number in g"),
        (WEIGHT, ["5 ml"], "which is not in g"),
        (WEIGHT, ["1", "2"], "only one value"),
        (HEIGHT, ["10 x 20"], "'10 x 20' is no number in cm"),
        (HEIGHT, ["1,500"], "'1,500 cm' can be read in several ways; write it out: 1500 cm or 1.5 cm"),
        (Attribute(name="Pieces", type="number"), ["1,500"], "in several ways; write it out: 1500 or 1.5$"),
        (ROAST, ["purple"], "'purple' is not in the vocabulary"),
        (Attribute(name="Vegan", type="boolean"), ["perhaps"], "neither true nor false"),
        (Attribute(name="Best before", type="date"), ["soon"], "is no date"),
        (Attribute(name="Brand"), ["n/a"], "mark it as not stated"),
        (Attribute(name="Brand"), [" ", ""], "a value is needed; if the text states none, mark it as not stated"),
    ],
)
def test_an_item_that_the_attribute_cannot_have_is_refused(attribute: Attribute, items: list[str], said: str) -> None:
    with pytest.raises(ItemError, match=said):
        checked_items(attribute, items)


def test_a_word_for_nothing_may_be_a_name_in_the_text() -> None:
    assert checked_items(Attribute(name="Brand"), ["None"], {"title": "Shirt by None Studios"}) == ("None",)
