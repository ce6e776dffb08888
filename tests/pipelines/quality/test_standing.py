"""What stands of two models' answers, and what is kept of the other."""

from __future__ import annotations

from hpd_core import ErrorCode, RecordResult, Value
from pipelines.quality.both_answers import count_asked, standing
from tests.tables import table


def value(text: str | None) -> Value:
    return Value(text, (text,) if text else (), "value" if text else "absent", num_tokens=1, logprob_mean=-0.5)


def result(values: dict[str, str | None], seconds: float = 1.0) -> RecordResult:
    return RecordResult("p1", "c", {name: value(text) for name, text in values.items()}, engine_seconds=seconds)


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
