"""Scores against hand-computed ones, and the properties that hold for any gold and any answers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute, Member
from pipelines.quality import scoring
from pipelines.quality.gold import GoldValue
from pipelines.quality.scoring import Answer, AnswerJudgement, AnswerOutcome, Comparison, Rates, judge
from tests.tables import table

ACME = GoldValue((("Acme", "ACME Inc."),))
NUMBER = Attribute(name="Weight", type="number", unit="g")
ENUM = Attribute(name="Closure", type="enum", values=("None", "N/A", "zip"))


def value(*items: str) -> Answer:
    return Answer("value", items)


def judgement(product: int, attribute: str, outcome: AnswerOutcome, category: str = "Coffee") -> AnswerJudgement:
    return AnswerJudgement(product, category, attribute, ACME, value("Acme"), outcome)


@table(
    ("accepted", "predicted"),
    [
        ("Acme", "ACME"),
        ("12 oz", "12\u00a0 oz "),
        ("500 ml", "５００ ml"),
        ("Straße", "STRASSE"),
        ("Café", "cafe\u0301"),
    ],
)
def test_folded_comparison(accepted: str, predicted: str) -> None:
    gold = GoldValue(((accepted,),))
    assert judge(gold, value(predicted)) is AnswerOutcome.VW
    assert judge(gold, value(predicted), Comparison.FOLDED) is AnswerOutcome.VC
    assert judge(gold, value("another"), Comparison.FOLDED) is AnswerOutcome.VW


@table(
    ("label", "written", "norm", "is_right"),
    [
        ("708.74", "25", "708.738", True),  # 25 oz, and grams are asked for
        ("709", "25", "708.738", True),
        ("708.7", "25", "708.738", True),
        ("708", "25", "708.738", False),  # it would be rounded to 709
        ("25", "25", "708.738", True),  # a label as the text has it
        ("5", "4600", "4.6", False),  # rounded to it, and another amount
        ("708.74", "25", None, False),
        ("12", "10-12 kg", "10000 to 12000", False),
        ("12", "11.9", "11.9", False),  # not converted: exact, as ever
    ],
)
def test_a_converted_number_is_right_if_it_is_the_label_rounded(
    label: str, written: str, norm: str | None, is_right: bool
) -> None:
    answer = Answer("value", (written,), norms=(norm,))
    assert judge(GoldValue(((label,),)), answer, attribute=NUMBER).is_right == is_right


@table(
    ("gold", "answer", "outcome"),
    [
        ([["noir"]], ["Black"], AnswerOutcome.VC),
        ([["NOIR", "jet"]], ["Black"], AnswerOutcome.VC),
        ([["noir"]], ["White"], AnswerOutcome.VW),
        ([["noir"], ["jet"]], ["Black"], AnswerOutcome.VC),  # one member under two names
        ([["noir"], ["White"]], ["White", "Black"], AnswerOutcome.VC),
        ([["noir"], ["White"]], ["Black"], AnswerOutcome.VW),
        ([["ebony"]], ["Black"], AnswerOutcome.VW),  # no name of a member
    ],
)
def test_gold_spelled_as_a_synonym_is_the_member(
    gold: list[list[str]], answer: list[str], outcome: AnswerOutcome
) -> None:
    members = (Member(label="Black", synonyms=("noir", "jet")), Member(label="White"))
    colours = Attribute(name="Colours", type="enum", values=members, multiple=True)
    accepted = GoldValue(tuple(map(tuple, gold)))
    assert judge(accepted, value(*answer), attribute=colours) is outcome


# Bootstrap


def sample(num_products: int = 60, seed: int = 1) -> list[AnswerJudgement]:
    choices = random.Random(seed)
    return [
        judgement(product, attribute, choices.choice(list(AnswerOutcome)), choices.choice(["Coffee", "Tea"]))
        for product in range(num_products)
        for attribute in ("Brand", "Roast", "Form")
    ]


def naive_bootstrap(judgements: Sequence[AnswerJudgement], num_products: int, num: int, seed: int) -> list[Rates]:
    """Micro and macro rates of the same draws, with products written out as many times as they were drawn."""
    generator = np.random.default_rng(seed)
    rates = []
    for _ in range(num):
        weights = generator.multinomial(num_products, np.full(num_products, 1 / num_products))
        drawn = [each for each in judgements for _ in range(weights[each.product])]
        rates.append(scoring.count(each.outcome for each in drawn).rates)
        rates.append(scoring.macro_rates(scoring.count_by_pair(drawn).values()))
    return rates


def test_the_bootstrap_equals_a_naive_one_whatever_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    judgements = sample()
    naive = naive_bootstrap(judgements, 60, num=20, seed=3)
    for max_elements in (1, 7 * len(judgements), 10**6):
        monkeypatch.setattr(scoring, "_MAX_CHUNK_ELEMENTS", max_elements)
        resamples = scoring.bootstrap(judgements, 60, num_resamples=20, seed=3)
        for rates, row in zip(naive[::2], resamples.micro, strict=True):
            assert row == pytest.approx([rates.precision, rates.recall, rates.f1])
        for rates, row in zip(naive[1::2], resamples.macro, strict=True):
            assert row == pytest.approx([rates.precision, rates.recall, rates.f1])


# Properties

words = st.sampled_from(["a", "b", "c", "A", "n/a", "None", "two words"])
gold_values = st.lists(st.lists(words, min_size=1, max_size=2).map(tuple), max_size=3).map(
    lambda items: GoldValue(tuple(items))
)


@given(gold=gold_values, items=st.lists(words, min_size=1, max_size=3))
def test_matching_equals_trying_every_order(gold: GoldValue, items: list[str]) -> None:
    if gold.is_absent or set(items) <= {"n/a", "None"}:
        return
    right = len(items) == len(gold.items) and any(
        all(item in forms for item, forms in zip(items, order, strict=True))
        for order in itertools.permutations(gold.items)
    )
    assert judge(gold, value(*items)) is (AnswerOutcome.VC if right else AnswerOutcome.VW)


@table("comparison", list(Comparison))
@table(
    ("form", "predicted", "attribute", "right"),
    [
        ("1/2", "0.5", NUMBER, True),
        (".5", "0.50", NUMBER, True),
        ("1e3", "1000", NUMBER, True),
        ("1,500", "1500", NUMBER, True),
        ("1,500", "1.5", NUMBER, True),
        ("1,500", "1,500", NUMBER, True),
        ("1,500", "15", NUMBER, False),
        ("1,500.5", "1500.5", NUMBER, True),
        ("1500 g", "1500", NUMBER, True),
        ("−20", "-20", NUMBER, True),
        ("1500", "1501", NUMBER, False),
        ("about 5", "5", NUMBER, False),
        ("n/a", "N/A", ENUM, True),
        ("none", "None", ENUM, True),
        ("zip", "None", ENUM, False),
        ("Yes", "true", Attribute(name="Lid", type="boolean"), True),
        ("no", "true", Attribute(name="Lid", type="boolean"), False),
        ("1/2", "0.5", Attribute(name="Size"), False),
        ("1/2", "0.5", None, False),
    ],
)
def test_forms_are_read_as_answers_are(
    form: str, predicted: str, attribute: Attribute | None, right: bool, comparison: Comparison
) -> None:
    outcome = judge(GoldValue(((form,),)), value(predicted), comparison, attribute)
    assert outcome is (AnswerOutcome.VC if right else AnswerOutcome.VW)


def test_the_product_s_text_tells_what_a_gold_number_is_worth() -> None:
    gold = GoldValue((("1,500",),))
    outcomes = [
        judge(gold, value(text), attribute=NUMBER, fields={"title": "flour, 1,500 g"}) for text in ("1500", "1.5")
    ]
    assert outcomes == [AnswerOutcome.VC, AnswerOutcome.VW]
