"""From labelled products to the steps of an epoch; nothing here needs a model."""

from __future__ import annotations

import random
import re
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Record
from hpd_core.training.examples import Example
from pipelines.quality.gold import GoldProduct, GoldValue
from pipelines.training.course import choose, split_products
from pipelines.training.labelled_products import LabelledProduct
from tests.examples import examples
from tests.pipelines.training.planners import TOKENIZER, examples_of, make_planner
from tests.tables import table


def make_products(count: int, seed: int = 0) -> list[LabelledProduct]:
    rng = random.Random(seed)
    products = []
    for number in range(count):
        category = rng.choice(["A", "B", "C"])
        schema = CategorySchema(category=category, attributes=(Attribute(name=f"{category}1"), Attribute(name="Other")))
        text = " ".join(rng.choice(["red", "velor", "soft", "42"]) for _ in range(rng.randint(1, 30)))
        record = Record(str(number), category, {"title": f"{text} #{number}"})
        gold = GoldProduct(number, str(number), category, {f"{category}1": GoldValue(((f"v{number}",),))})
        products.append(LabelledProduct(record, schema, gold, {f"{category}1": [f"v{number}"]}, ["Other"], {}))
    return products


@settings(max_examples=examples(20))
@given(
    st.integers(1, 60),
    st.sampled_from(["tree", "stacked", "ar"]),
    st.integers(1, 3),
    st.integers(64, 900),
    st.integers(1, 30),
)
def test_an_epoch_has_every_product_once(count: int, layout: str, workers: int, budget: int, documents: int) -> None:
    products = make_products(count)
    optimizer = {"max_tokens_per_pack": budget, "documents_per_step": documents}
    options = {"layout": layout, "optimizer": optimizer, "scaling": {"num_workers": workers}}
    planner = make_planner(products, **options)
    steps = planner.epoch(0)
    packs = [pack for step in steps for packs in step.packs for pack in packs if pack]
    assert sum(example.num_documents for pack in packs for example in pack) == count
    assert planner.num_too_long == 0
    for pack in packs:
        assert len({tuple(e.filled.token_ids[: e.num_prefix_tokens].tolist()) for e in pack}) == 1, "one prefix"
        padded = pack[0].num_prefix_tokens + len(pack) * max(example.num_own_tokens for example in pack)
        assert len(pack) == 1 or padded <= budget
    for step in steps:
        assert len(step.packs) == workers
        assert len({len(packs) for packs in step.packs}) == 1, "workers meet as often"
        examples = [example for packs in step.packs for pack in packs for example in pack]
        assert step.num_targets == sum(example.num_targets for example in examples)
        assert step.num_documents == sum(example.num_documents for example in examples)
        assert all(len(pack) == 1 or sum(e.num_documents for e in pack) <= -(-documents // workers) for pack in packs)
    assert all(step.num_documents >= documents for step in steps[:-1])
    assert shown_products(examples_of(planner, 1)) == {str(number): 1 for number in range(count)}


def shown_products(examples: list[Example]) -> Counter[str]:
    return Counter(
        number for example in examples for number in re.findall(r"#(\d+)", TOKENIZER.decode(example.filled.token_ids))
    )


@table("layout", ["tree", "stacked", "ar"])
def test_how_many_products_are_in_a_prompt(layout: str) -> None:
    """J is drawn from 1..J_max for `stacked` (paper, 4.4), each as often as the others; it is 1 elsewhere."""
    examples = [
        example for epoch in range(5) for example in examples_of(make_planner(make_products(200), layout=layout), epoch)
    ]
    drawn = Counter(example.num_documents for example in examples)
    if layout != "stacked":
        assert set(drawn) == {1}
        return
    assert set(drawn) == {1, 2, 3, 4}
    assert all(abs(count / len(examples) - 0.25) < 0.07 for count in drawn.values()), drawn
    assert set(shown_products(examples).values()) == {5}


def test_equal_texts_are_on_one_side_of_the_split() -> None:
    products = make_products(200)
    again = [
        LabelledProduct(
            Record(f"again {p.record.id}", p.record.category, p.record.fields), p.schema, p.gold, {}, [], {}
        )
        for p in products
    ]
    training, validation = split_products([*products, *again], 0.2)
    assert {p.fingerprint for p in training}.isdisjoint(p.fingerprint for p in validation)
    assert 40 <= len(validation) <= 130
    distinct = split_products(products, 0.2)[1]
    assert choose(distinct, 10) == choose(list(reversed(distinct)), 10)
    assert split_products(products, 0.0) == (products, [])
