"""JSON between words is found whole; what is nearly JSON is read, what was cut never is."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.labelling.loose_json import NotANumber, find_values
from tests.examples import examples
from tests.tables import table


def values(text: str) -> list[Any]:
    return [found.value for found in find_values(text)]


@table(
    ("text", "value"),
    [
        ("{'a': 'x', 'b': None, 'c': True,}", {"a": "x", "b": None, "c": True}),
        ("{'a': 'Men's shirt', 'b': 'x'}", {"a": "Men's shirt", "b": "x"}),
        ("""{'a': "Men's", 'b': 'say "hi"', 'c': 'it\\'s'}""", {"a": "Men's", "b": 'say "hi"', "c": "it's"}),
        ('{ // the brand\n "a": "x", /* two */ "b": .5, # three\n c: +3 }', {"a": "x", "b": ".5", "c": "+3"}),
        ('{“a”: “b"c”}', {"a": 'b"c'}),
        ("{“a”：“x“，”b”: ”y”}", {"a": "x", "b": "y"}),
        ('{"a": "12" TV, 4" deep", "b": "the "best""}', {"a": '12" TV, 4" deep', "b": 'the "best"'}),
        ('{"a": "x" // the brand\n}', {"a": "x"}),
        ('{"a": "L\\XL", "b": "x\\\\y", "c": "q\\"q"}', {"a": "L\\XL", "b": "x\\y", "c": 'q"q'}),
        ('{"a": 1.50, "b": 1e3, "c": 007}', {"a": "1.50", "b": "1e3", "c": "007"}),
        ('{"a": [1, 2,], "b": undefined}', {"a": ["1", "2"], "b": None}),
        ('{{"a": 1}}', {"a": "1"}),
        ('{"a": "}{"}', {"a": "}{"}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        (f'{{"a": {"9" * 5000}}}', {"a": "9" * 5000}),
    ],
)
def test_json_and_what_is_nearly_so(text: str, value: Any) -> None:
    assert values(f"Here it is: {text} Anything else?") == [value]


def test_too_many_are_told() -> None:
    found = values('{"a": 1} ' * 5000)
    assert (found[-1], len(found)) == (None, 1001), "the last one of them is not known"


def test_not_a_number_is_no_text() -> None:
    (value,) = values('{"a": NaN, "b": -Infinity}')
    assert all(isinstance(item, NotANumber) for item in value.values())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def as_texts(value: Any) -> Any:
    """Numbers are read as they were written."""
    if isinstance(value, dict):
        return {key: as_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_texts(item) for item in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.data())
@settings(max_examples=examples(200))
def test_every_object_is_found_and_none_is_completed(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    assert values(f"So: {text}.") == [as_texts(value)]
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    assert all(found is None for found in values(cut)[-1:])


@given(st.text(alphabet="{}[]\"':,a1\\/#* \n“”", max_size=60))
@settings(max_examples=examples(300))
def test_any_text_is_survived(text: str) -> None:
    for found in find_values(text):
        assert 0 <= found.start < found.end <= len(text)
