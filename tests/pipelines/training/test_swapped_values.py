"""Values that make room for those of other products: what the labels say stays true of the text."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import CategorySchema, Record
from pipelines.quality.gold import GoldProduct
from pipelines.quality.scoring import words_pattern
from pipelines.training.labelled_products import Items, LabelledProduct
from pipelines.training.swapped_values import swap_values
from tests.examples import examples
from tests.pipelines.training.planners import TOKENIZER, examples_of, make_planner
from tests.tables import table

SHOES = CategorySchema.model_validate(
    {
        "category": "Shoes",
        "attributes": [
            {"name": "Brand"},
            {"name": "Model"},
            {"name": "Colour"},
            {"name": "Weight", "type": "number"},
            {"name": "Tags", "multiple": True},
        ],
    }
)
VALUES = {"Brand": ["Crocs", "Ellie Shoes"], "Model": ["Jayna", "8400"], "Colour": ["Red Patent", "Blue"]}


def swap(labels: dict[str, Items], seed: int, **fields: str) -> tuple[dict[str, str], dict[str, Items]]:
    record, told = swap_values(Record("1", "Shoes", fields), SHOES, labels, VALUES, random.Random(seed))
    return dict(record.fields), told


@table(
    ("labels", "title"),
    [
        ({"Brand": ["Ellie"]}, "Ellie Shoes by Ellie"),  # it stands in two places
        ({"Brand": ["Ellie Shoes"], "Model": ["Shoes"]}, "Ellie Shoes"),  # another value touches it
        ({"Brand": ["Elli"]}, "Ellie Shoes"),  # it is a part of a word
        ({"Brand": ["Bluhorn"]}, "Blu Horn"),  # it is nowhere
        ({"Tags": ["red", "soft"]}, "red, soft"),
        ({"Brand": ["Ellie"], "Tags": ["Crocs", "Shoes"]}, "Ellie for Crocs or Ellie Shoes"),
    ],
)
def test_what_is_not_clear_stays(labels: dict[str, Items], title: str) -> None:
    for seed in range(20):
        assert swap(labels, seed, title=title) == ({"title": title}, labels)


def test_a_value_that_would_stand_twice_is_not_put_in() -> None:
    """'Blue' would be the colour and stand in the model's name as well."""
    for seed in range(40):
        fields, told = swap({"Colour": ["Red Patent"]}, seed, title="Red Patent with Blue laces")
        assert told == {"Colour": ["Red Patent"]}
        assert fields == {"title": "Red Patent with Blue laces"}


HATS = CategorySchema.model_validate(
    {"category": "Hats", "attributes": [{"name": "Brand"}, {"name": "Colour"}, {"name": "Line"}]}
)


def hats() -> list[LabelledProduct]:
    """Velor is a brand and a line: a text into which it is put may state either."""
    made: list[tuple[dict[str, Items], str, list[str]]] = [
        ({"Brand": ["Crocs"], "Colour": ["red"]}, "Crocs hat, red", ["Line"]),
        ({"Brand": ["Velor"], "Colour": ["blue"]}, "Velor hat, blue", []),
        ({"Brand": ["Ellie"], "Line": ["Velor"]}, "Ellie hat Velor", ["Colour"]),
    ]
    words = {"Brand": ["crocs", "velor", "ellie"], "Colour": ["red", "blue"], "Line": ["velor"]}
    known = {name: words_pattern(values) for name, values in words.items()}
    return [
        LabelledProduct(
            Record(str(n), "Hats", {"title": text}), HATS, GoldProduct(n, None, "Hats", {}), labels, absent, known
        )
        for n, (labels, text, absent) in enumerate(made)
    ]


def taught(epoch: int, **labels: Any) -> list[str]:
    """The texts of an epoch's examples, one product each."""
    return sorted(
        TOKENIZER.decode(example.filled.token_ids)
        for example in examples_of(make_planner(hats(), labels=labels), epoch)
    )


def answers_of(example: str) -> dict[str, str | None]:
    """What is taught: behind the text stand the keys, and behind them their values."""
    answer = example.rpartition("{\n")[2]
    keys = re.findall(r'"(\w+)":', answer)
    values = json.loads(f"[{answer.rpartition(':')[2].strip().rstrip(',')}]")
    return dict(zip(keys, values, strict=True))


def test_training_swaps_and_teaches_as_absent_only_what_is_not_known_to_stand_there() -> None:
    plain = taught(0)
    assert len(plain) == 3
    assert taught(0, swapped=0.0) == plain
    seen: Counter[str] = Counter()
    for epoch in range(12):
        examples = taught(epoch, swapped=1.0)
        assert examples == taught(epoch, swapped=1.0), "drawn from the seed and the epoch"
        for example in examples:
            crocs = re.search(r"(Crocs|Velor|Ellie) hat, (red|blue)", example)
            if crocs is None:
                continue
            brand, colour = crocs.groups()
            answers = answers_of(example)
            assert (answers["Brand"], answers["Colour"]) == (brand, colour)
            seen[brand] += 1
            assert "Line" not in answers or brand != "Velor", "a line is called Velor"
        # Where it is said that what is not labelled is absent, it is taught so, whatever the text holds now.
        seen["absent"] += sum(
            "Velor hat, " in each and answers_of(each).get("Line", "") is None
            for each in taught(epoch, swapped=1.0, unlabelled="absent")
        )
    assert {"Crocs", "Velor", "Ellie", "absent"} == {name for name, count in seen.items() if count}


words = st.sampled_from(["Crocs", "Ellie", "Shoes", "Jayna", "8400", "Red", "Patent", "Blue", "the", "of", "-", ","])
texts = st.lists(words, min_size=1, max_size=9).map(" ".join)


@settings(max_examples=examples(200), deadline=None)
@given(texts, texts, st.data())
def test_labels_are_as_true_as_before(title: str, more: str, data: st.DataObject) -> None:
    """A value that stood in the text stands in it, or one that was put in its place; nothing else changes."""
    tokens = (title + " " + more).split()
    labels: dict[str, Items] = {}
    for name in ("Brand", "Model", "Colour"):
        start = data.draw(st.integers(0, len(tokens) - 1))
        labels[name] = [" ".join(tokens[start : start + data.draw(st.integers(1, 2))])]
    fields, told = swap(labels, data.draw(st.integers(0, 9)), title=title, text=more)
    text, before = "\n".join(fields.values()), f"{title}\n{more}"
    changed = {name for name in labels if told[name] != labels[name]}
    assert bool(changed) == (text != before)
    for name, items in told.items():
        (value,), (old,) = items or (), labels[name] or ()
        assert value in text or old not in before
        if name in changed:
            assert value in VALUES[name]
            assert text.count(value) >= 1
    lengths = [len(told[name][0]) - len(labels[name][0]) for name in changed]  # type: ignore[index]
    assert len(text) - len(before) == sum(lengths)
