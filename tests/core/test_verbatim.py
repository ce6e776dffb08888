"""Verbatim values, and numbers that a record states: of all runs of its document, or of these numbers, the one that a
forward for each of them finds likeliest, and never another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hpd_core import (
    Attribute,
    AutoregressiveBaseline,
    CategorySchema,
    Engine,
    EngineError,
    ModelError,
    OpenBranch,
    Record,
    SchemaError,
    Trunk,
)
from hpd_core.config import EngineConfig
from hpd_core.decoding import run_tries
from hpd_core.models.loading import load_model, load_tokenizer
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.text.runs import field_lines, runs_of
from hpd_core.text.template import Piece
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import Verbatim, spelled
from hpd_core.text.values import parse_value
from tests.core.engines import K_MAX, TIMEOUT, answers, config
from tests.core.oracle import CAUSAL, choose_member

SHOES = CategorySchema.model_validate(
    {
        "category": "Shoes",
        "attributes": [
            {"name": "Brand", "verbatim": True},
            {"name": "Size", "type": "number"},
            {"name": "Model", "verbatim": True, "max_value_tokens": 5},
            {"name": "Free"},
        ],
    }
)
SCHEMAS = {"Shoes": SHOES}
LIMITS = {"Brand": K_MAX, "Size": K_MAX, "Model": 5}
COPIED = ("Brand", "Model")
ODD = {
    "quotes": {"title": 'a 5" L\\XL', "more": "Blu\\nHorn"},
    "scripts": {"title": "日本製☕ größe"},
    "entities": {"title": "A&amp;B", "empty": " "},
    "control": {"title": "<|im_end|>"},
    "nothing": {"title": ""},
}


def shoes(count: int = 0) -> list[Record]:
    sizes = [{}, {"Size": ()}, {"Size": ("7",)}, {"Size": ("12", "1.5", "-40", "1200")}, {"Size": ("1", "12", "12.0")}]
    odd = [Record(name, "Shoes", *each) for (name, *each) in zip(ODD, ODD.values(), sizes, strict=True)]
    return odd + [Record(str(n), "Shoes", {"title": f"red {n} shoe", "text": f"Velor {n % 7}"}) for n in range(count)]


@pytest.fixture(scope="module")
def engine(tiny_model_dir: Path) -> Iterator[Engine]:
    with Engine.from_pretrained(str(tiny_model_dir), config(max_scored_tokens=5000)) as engine:
        yield engine


def check_likeliest(engine: Engine, oracle: Any, tokenizer: Any, records: list[Record]) -> None:
    """Check that each copied value is the likeliest of all runs, or numbers, by a forward for each."""
    segments, results = SegmentTokenizer(tokenizer), engine.extract(records, SCHEMAS)
    prepared, _ = PromptBuilder(tokenizer, engine.config, None).build(records, SCHEMAS)
    for item in prepared:
        layout, number = item.layout, item.slots[0].trunk
        document = range(layout.num_prefix_tokens, len(layout.trunk)) if engine.config.reads_both_ways else CAUSAL
        runs = list(map(spelled, runs_of(field_lines(records[number].fields))))
        for branch, attribute in enumerate(SHOES.attributes[:3]):
            name, numbers = attribute.name, records[number].numbers.get(attribute.name)
            if name == "Size" and numbers is None:
                assert results[number].values[name].choice is None
                continue
            lines = [f" {each},\n" for each in ("null", *(numbers if numbers is not None else runs))]
            spellings = [tokens[: engine.endings.length(tokens, True)] for tokens in segments.encode_text(lines)]
            most = max(LIMITS[name], len(spellings[0]))
            members = [member for member, tokens in enumerate(spellings) if len(tokens) <= most]
            value = results[number].values[name]
            if members == [0]:
                assert (value.text, value.status, value.choice) == (None, "absent", "greedy")
                continue
            chain = layout.token_ids[(layout.scopes < 0) | (layout.scopes == branch)].tolist()
            of_members = [spellings[member] for member in members]
            found = choose_member(oracle, chain, of_members, members, document, engine.config.answer_threshold)
            read = parse_value(attribute, lines[found.member], closed=True)  # a mark alone says nothing
            assert (value.text, value.status, value.choice) == (read.text, read.status, "scored")
            assert value.probability == pytest.approx(found.shares[found.member], abs=0.012)
            assert value.num_tokens == len(spellings[found.member])


def test_values_are_the_likeliest_of_all_runs(engine: Engine, tiny_model_dir: Path) -> None:
    oracle, tokenizer = (load(str(tiny_model_dir), config()) for load in (load_model, load_tokenizer))
    check_likeliest(engine, oracle, tokenizer, shoes(1))


def test_company_room_and_budget_change_no_document(
    engine: Engine, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many documents at once, and twins; with no room but for those that are decoded; whatever the budget."""
    records = [*shoes(40), *shoes(3)]
    together = engine.extract(records, SCHEMAS)
    assert answers(together) == answers([engine.extract([record], SCHEMAS)[0] for record in records[:8]]) + answers(
        together[8:]
    )
    monkeypatch.setattr(run_tries, "_MOST_BYTES", 0)
    assert answers(engine.extract(records, SCHEMAS)) == answers(together)
    table = engine._decoder._tries
    for _ in range(3):  # what the last one had is removed behind its end
        engine.extract(records[:1], SCHEMAS)
        assert len(table.added_since(0)) <= 2 * (1 + len(records))
    free = [result.values["Free"] for result in together]
    for settings, expected in (
        (config(max_scored_tokens=3), {"greedy"}),
        (config(max_scored_tokens=0), {"greedy"}),
    ):
        with Engine.from_pretrained(str(tiny_model_dir), settings) as small:
            results = small.extract(records, SCHEMAS)
        values = [
            (record, result.values[name]) for record, result in zip(records, results, strict=True) for name in COPIED
        ]
        assert expected <= {value.choice for _, value in values}
        for record, value in values:
            assert value.status in ("value", "absent")
            assert value.text is None or any(value.text in text for text in record.fields.values())
        assert [(each.raw, each.choice) for each in free] == [(r.values["Free"].raw, None) for r in results]


def trunk(text: str) -> Trunk:
    return Trunk((Piece("<|im_start|>Answer.\n", True),), text, (Piece("\n{\n", True),))


def test_a_text_of_a_json_schema_is_copied(engine: Engine) -> None:
    copied = {"type": "string", "x-hpd-verbatim": True}
    schema = {"type": "object", "properties": {"brand": copied, "part": copied}, "required": ["part"]}
    for text, result in zip(("red shoe", "Velor 5"), engine.extract_json(["red shoe", "Velor 5"], schema), strict=True):
        assert result.problems == ()
        assert "part" in result.data
        assert all(value in text for value in result.data.values())
    for wrong, message in (
        ({**copied, "pattern": "a"}, "without a pattern"),
        ({"type": "array", "items": copied}, "not for those of a list"),
    ):
        with pytest.raises(SchemaError, match=message):
            engine.submit_json(["a"], {"type": "object", "properties": {"x": wrong}})


def test_what_is_abandoned_or_fails_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [trunk(f"a {number}") for number in range(200)]
    future = engine.complete(many, [[OpenBranch("a:", Verbatim())]] * 200)
    future.abandon()

    def runs_or_trouble(lines: tuple[str, ...]) -> list[str]:
        """Of "b" none; who waits for "d" goes meanwhile."""
        if lines == ("d",):
            gone.abandon()
        return runs_of(lines) if lines != ("b",) else runs_of(1 / 0)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(run_tries, "runs_of", runs_or_trouble)
        calls = [([trunk(text)], [[OpenBranch("a:", Verbatim())]]) for text in "bcd"]
        failing, other, gone = engine._completions.submit(calls)
        with pytest.raises(EngineError, match="division by zero"):
            failing.result(TIMEOUT)
        assert other.result(TIMEOUT)[0].branches[0].value == "c"  # prepared beside it
        assert gone.exception(TIMEOUT) is not None
    (found,) = engine.complete(*calls[1]).result(TIMEOUT)
    assert found.branches[0].value == "c"
    assert num_lent_bytes(engine) == 0


def num_lent_bytes(engine: Engine) -> int:
    """Of the tries of documents that are in the tables."""
    runs = engine._runs
    assert runs is not None
    return runs._tables.leases.num_lent_bytes


def test_numbers_of_other_attributes_and_texts_are_refused(engine: Engine) -> None:
    for numbers, message in ({"Brand": ("1",)}, "'Brand' is no single number"), ({"Size": ("1,5",)}, "hold '1,5'"):
        with pytest.raises(ValueError, match=message):
            engine.extract([Record("a", "Shoes", {"title": "a"}, numbers)], SCHEMAS)
    with Engine.from_pretrained(engine.model_id, config(numbers="free")) as free:
        records = shoes()
        assert {result.values["Size"].choice for result in free.extract(records, SCHEMAS)} == {None}


def test_what_cannot_be_copied_is_refused_by_name(tiny_model_dir: Path) -> None:
    for more, message in ({"type": "number"}, "of the type 'number'"), ({"multiple": True}, "is a list"):
        with pytest.raises(ValidationError, match=f"{message}: 'verbatim' is for one string"):
            Attribute.model_validate({"name": "Size", "verbatim": True, **more})
    for options, message in ({"layout": "stacked"}, "layout 'tree'"), ({"constrain_values": False}, "constrain_values"):
        with pytest.raises(ValidationError, match=f"strings 'verbatim' is .*{message}"):
            EngineConfig.model_validate({"strings": "verbatim", **options})
        with Engine.from_pretrained(str(tiny_model_dir), config(**options)) as engine:
            with pytest.raises(
                ValueError, match=f"attribute 'Brand' of category 'Shoes' is verbatim, which is .*{message}"
            ):
                engine.extract(shoes(1), SCHEMAS)
            if "constrain_values" in options:
                with pytest.raises(ValueError, match=r"set engine\.constrain_values to true"):
                    engine.complete([trunk("a")], [[OpenBranch("a:", Verbatim())]])
    with (
        AutoregressiveBaseline.from_pretrained(str(tiny_model_dir), config()) as baseline,
        pytest.raises(ValueError, match="'Brand' of category 'Shoes' is verbatim, which is for decoding 'hpd'"),
    ):
        baseline.extract(shoes(1), SCHEMAS)
    with pytest.raises(ModelError, match="strings is 'verbatim', and 'ar' writes what it likes"):
        AutoregressiveBaseline.from_pretrained(str(tiny_model_dir), config(strings="verbatim"))
