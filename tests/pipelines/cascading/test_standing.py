"""What stands of two models' answers, and what is kept of the other."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import ErrorCode, RecordResult, Value
from pipelines.cascading.standing import Standing, count_asked, replaced_answer, standing
from pipelines.store.columns import REPLACED
from tests.tables import table

ENGINE = {"model_id": "small", "adapter_revision": "r1"}


def value(text: str | None) -> Value:
    return Value(text, (text,) if text else (), "value" if text else "absent", num_tokens=1, logprob_mean=-0.5)


def result(values: dict[str, str | None], seconds: float = 1.0) -> RecordResult:
    return RecordResult("p1", "c", {name: value(text) for name, text in values.items()}, engine_seconds=seconds)


def test_where_the_larger_model_fails_the_first_ones_answers_stay() -> None:
    first = result({"a": "x", "b": None})
    refused = RecordResult("p1", "c", {}, "no room", ErrorCode.TOO_LONG)
    for second in (None, refused):
        found = standing(first, second, {"a": None, "b": None})
        assert found.result == first
        assert count_asked([found])["kept"] == 2


@table("failed", ["truncated", "invalid", "error"])
def test_what_is_no_answer_takes_no_answers_place(failed: str) -> None:
    cut = Value(None, (), failed, raw="Acm")  # type: ignore[arg-type]
    first = RecordResult("p1", "c", {"a": value("x"), "b": value(None), "c": Value(None, (), "invalid"), "d": cut})
    second = RecordResult("p1", "c", {"a": cut, "b": cut, "c": cut, "d": value("y")})
    found = standing(first, second, dict.fromkeys("abcd"))
    assert found.result.values == {"a": value("x"), "b": value(None), "c": cut, "d": value("y")}
    assert found.replaced == {name: first.values[name] for name in "cd"}
    assert count_asked([found])["kept"] == 2


def test_a_record_that_only_the_larger_model_takes_is_no_dead_letter() -> None:
    refused = RecordResult("p1", "c", {"a": Value(None, (), "error")}, "too long", ErrorCode.TOO_LONG)
    second = result({"a": "x"})
    found = standing(refused, second, {"a": None})
    assert found.result.error is None
    assert found.result.values["a"].text == "x"
    assert found.replaced == {"a": None}
    assert count_asked([found])["changed"] == 1
    assert standing(refused, None, {"a": None}).result.error == "too long"


def test_what_was_replaced_fits_the_table() -> None:
    list_value = Value("x; y", ("x", "y"), "value", num_tokens=2, logprob_mean=-0.5)
    invalid = Value(None, (), "invalid", raw="?!", num_tokens=1, logprob_mean=-1.0)
    rows = [replaced_answer(each, ENGINE, None) for each in (list_value, value(None), invalid, None)]
    assert pa.array(rows, REPLACED).to_pylist() == rows
    assert [row["value"] for row in rows] == ["x; y", None, "?!", None]
    assert [row["status"] for row in rows] == ["value", "absent", "invalid", "error"]
    assert all(row["source"] == "model" and row["model_id"] == "small" for row in rows)
    assert 0 < rows[0]["probability"] < 1


texts = st.none() | st.sampled_from(["x", "y"])


@given(
    st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), texts), st.sets(st.sampled_from("abc")), st.booleans()))
)
def test_counts_add_up(records: list[tuple[dict[str, str | None], set[str], bool]]) -> None:
    stood: list[Standing] = []
    for values, names, is_answered in records:
        asked = {name: None for name in values if name in names}
        second = result(dict.fromkeys(asked, "x")) if asked and is_answered else None
        stood.append(standing(result(values), second, asked))
    counts = count_asked(stood)
    assert counts["answers"] == sum(len(values) for values, _, _ in records)
    assert counts["asked"] == counts["replaced"] + counts["kept"] <= counts["answers"]
    assert counts["changed"] <= counts["replaced"]
    assert counts["products"] <= len(records)
