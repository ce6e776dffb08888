"""Exclusive values: each stands in a place of its own, and is the likeliest run of what likelier ones have left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpd_core import Attribute, CategorySchema, Engine, Record, RecordResult
from hpd_core.models.loading import load_model, load_tokenizer
from hpd_core.requests.exclusive_rounds import Copied, ExclusivePlaces
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.text.runs import field_lines, runs_of
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import spelled
from hpd_core.text.values import parse_value
from tests.core.engines import K_MAX, config
from tests.core.oracle import choose_member

EXCLUSIVE = {"verbatim": "exclusive"}
SHOES = CategorySchema.model_validate(
    {
        "category": "Shoes",
        "attributes": [
            {"name": "Brand", **EXCLUSIVE},
            {"name": "Size", "type": "number"},
            {"name": "Model", **EXCLUSIVE, "max_value_tokens": 5},
            {"name": "Colour", **EXCLUSIVE},
            {"name": "Line", **EXCLUSIVE, "shares_text_with": ["Model"]},
            {"name": "Copied", "verbatim": True},
        ],
    }
)
HATS = CategorySchema.model_validate(
    {"category": "Hats", "attributes": [{"name": "Brand", **EXCLUSIVE}, {"name": "Size"}]}
)
SCHEMAS = {"Shoes": SHOES, "Hats": HATS}
LIMITS = {"Model": 5}


def shoes(count: int) -> list[Record]:
    return [Record(str(n), "Shoes", {"title": f"red {n} shoe", "text": f"Velor {n % 7} red"}) for n in range(count)]


@pytest.fixture(scope="module")
def engine(tiny_model_dir: Path) -> Iterator[Engine]:
    with Engine.from_pretrained(str(tiny_model_dir), config(max_scored_tokens=5000)) as engine:
        yield engine


class Oracle:
    """The rounds, one value at a time, by a forward for each run."""

    def __init__(self, engine: Engine, tiny_model_dir: Path) -> None:
        self._engine, name = engine, str(tiny_model_dir)
        self._model = load_model(name, config())
        tokenizer = load_tokenizer(name, config())
        self._segments, self._builder = SegmentTokenizer(tokenizer), PromptBuilder(tokenizer, engine.config, None)

    def values(self, record: Record) -> dict[str, str | None]:
        """Of the exclusive attributes."""
        places = ExclusivePlaces(field_lines(record.fields), SHOES.rivals)
        found: dict[str, str | None] = {}
        contested, rates = sorted(SHOES.rivals), dict[str, float]()
        while contested:
            chosen = {name: self._choose(record, name, places.left_for(name), rates) for name in contested}
            found |= {name: text for name, (text, _) in chosen.items()}
            contested = places.settle(Copied(name, text, p) for name, (text, p) in chosen.items() if text is not None)
        return found

    def _choose(
        self, record: Record, name: str, lines: tuple[str, ...], rates: dict[str, float]
    ) -> tuple[str | None, float]:
        """The text and its share. `rates`: by attribute, what share a likelihood of 1 had in the first round."""
        prepared, _ = self._builder.build([record], SCHEMAS)
        layout = prepared[0].layout
        branch = [attribute.name for attribute in SHOES.attributes].index(name)
        written = [" null,\n", *(f" {spelled(run)},\n" for run in runs_of(lines))]
        spellings = [ids[: self._engine.endings.length(ids, True)] for ids in self._segments.encode_text(written)]
        most = max(LIMITS.get(name, K_MAX), len(spellings[0]))
        members = [member for member, ids in enumerate(spellings) if len(ids) <= most]
        if members == [0]:
            return None, 1.0
        threshold = self._engine.config.answer_threshold
        chain = layout.token_ids[(layout.scopes < 0) | (layout.scopes == branch)].tolist()
        found = choose_member(self._model, chain, [spellings[member] for member in members], members)
        masses = {member: math.exp(sum(each[0][1])) for member, each in found.spellings.items()}
        likeliest = max(members[1:], key=lambda member: masses[member])
        rate = rates.setdefault(name, found.shares[likeliest] / masses[likeliest])
        # Null's own likelihood, and what the runs that are left had at first.
        shares = {member: mass * (rate if member else 1.0) for member, mass in masses.items()}
        shares = {member: share / sum(shares.values()) for member, share in shares.items()}
        is_null = shares[0] >= 0.5 if threshold is None else shares[likeliest] < threshold
        member = 0 if is_null else likeliest
        return parse_value(Attribute(name=name), written[member], closed=True).text, shares[member]


def texts(result: RecordResult, names: Any = SHOES.rivals) -> dict[str, str | None]:
    return {name: result.values[name].text for name in names}


def check_places(record: Record, result: RecordResult) -> None:
    """That every value finds a place that none of its rivals needs: as many places as values that want them."""
    lines = field_lines(record.fields)
    for name, rivals in SHOES.rivals.items():
        text = result.values[name].text
        alike = [other for other in rivals if text is not None and result.values[other].text == text]
        assert text is None or sum(line.count(text) for line in lines) > len(alike)


def test_who_is_a_rival_of_whom() -> None:
    assert SHOES.rivals == {
        "Brand": {"Model", "Colour", "Line"},
        "Model": {"Brand", "Colour"},
        "Colour": {"Brand", "Model", "Line"},
        "Line": {"Brand", "Colour"},
    }
    assert HATS.rivals == {}, "one alone has nobody to give way to"


def test_values_are_those_of_the_oracle(engine: Engine, tiny_model_dir: Path) -> None:
    oracle, records = Oracle(engine, tiny_model_dir), shoes(3)
    results = engine.extract(records, SCHEMAS)
    plain = engine.extract(records, {"Shoes": without_exclusion(SHOES)})
    assert [texts(result) for result in results] == [oracle.values(record) for record in records]
    assert any(texts(one) != texts(other) for one, other in zip(results, plain, strict=True)), "some were contested"
    for record, result, other in zip(records, results, plain, strict=True):
        check_places(record, result)
        assert list(result.values) == [attribute.name for attribute in SHOES.attributes]
        assert texts(result, ("Size", "Copied")) == texts(other, ("Size", "Copied"))


def without_exclusion(schema: CategorySchema) -> CategorySchema:
    plain = {"verbatim": True, "shares_text_with": ()}
    attributes = [each.model_copy(update=plain) if each.is_exclusive else each for each in schema.attributes]
    return schema.model_copy(update={"attributes": tuple(attributes)})
