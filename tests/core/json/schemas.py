"""Random schemas of the subset, and a look at which question sees what."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ("name", "total", "a b", "é", "x/y~", "note")
Schema = dict[str, Any]


def _with(build: st.SearchStrategy[Schema], **extras: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return st.builds(lambda base, more: {**base, **more}, build, st.fixed_dictionaries({}, optional=extras))


SCALARS: st.SearchStrategy[Schema] = st.one_of(
    _with(st.just({"type": "string"}), maxLength=st.integers(0, 20), description=st.just("what it says")),
    st.sampled_from(["date", "email", "uuid", "time", "unheard-of"]).map(
        lambda name: {"type": "string", "format": name}
    ),
    st.just({"type": "string", "pattern": "^[a-z]{1,3}$"}),
    _with(st.just({"type": "number"}), minimum=st.integers(-5, 5), maximum=st.integers(6, 100)),
    st.just({"type": "integer"}),
    st.just({"type": "boolean"}),
    st.sampled_from([["red", "blue"], [1, 2.5, "x"], [True], ["a", None]]).map(lambda values: {"enum": values}),
    st.just({"const": "fixed"}),
)


def _nullable(schema: Schema) -> st.SearchStrategy[Schema]:
    forms: list[Schema] = [schema, {"anyOf": [schema, {"type": "null"}]}]
    if isinstance(schema.get("type"), str):
        forms.append({**schema, "type": [schema["type"], "null"]})
    return st.sampled_from(forms)


def _objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.dictionaries(st.sampled_from(NAMES), inner, max_size=4).flatmap(
        lambda properties: st.lists(st.sampled_from(sorted(properties) or ["-"]), unique=True).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": [name for name in required if name in properties],
            }
        )
    )


def _arrays(objects: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    items = st.one_of(SCALARS.filter(lambda each: None not in each.get("enum", ())), objects)
    return _with(st.builds(lambda each: {"type": "array", "items": each}, items), maxItems=st.integers(1, 4))


def _variants(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Objects of one of two shapes, which a constant or an enum tells apart."""

    def told(shape: Schema, told_by: Schema) -> Schema:
        named = {**shape["properties"], "note": told_by}
        return {**shape, "properties": named, "required": [*{*shape["required"], "note"}]}

    pairs = st.sampled_from([({"const": "p"}, {"enum": ["q", 3]}), ({"type": "integer", "const": 1}, {"const": 2})])
    return st.builds(
        lambda one, other, told_by, keyword: {keyword: [told(one, told_by[0]), told(other, told_by[1])]},
        _objects(inner),
        _objects(inner),
        pairs,
        st.sampled_from(["anyOf", "oneOf"]),
    )


_DEEP = st.recursive(
    SCALARS.flatmap(_nullable),
    lambda inner: st.one_of(
        _objects(inner).flatmap(_nullable),
        _arrays(_objects(inner)).flatmap(_nullable),
        _variants(inner).flatmap(_nullable),
    ),
    max_leaves=6,
)
SCHEMAS = _objects(_DEEP)
"""Of objects."""
