"""Labels in objects: by the whole names of their attributes, with schemas and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema
from hpd_core.plain_data import MAX_DEPTH, dotted, flattened, nested
from pipelines.errors import UsageError
from pipelines.quality.gold import GoldValue, read_gold
from tests.examples import examples
from tests.pipelines.quality.test_gold import ours, write
from tests.tables import table

PLACES = [("Brand",), ("size", "width"), ("size", "lid", "closure")]
SCHEMA = CategorySchema(
    category="Coffee",
    attributes=tuple(Attribute(name=dotted(each), path=each if len(each) > 1 else ()) for each in PLACES),
)
WIDTH, ABSENT = GoldValue((("12",),)), GoldValue(())


def read(folder: Path, values: dict[str, Any], *, with_schemas: bool = True) -> dict[str, GoldValue]:
    path = write(folder / "gold.jsonl", ours(**values))
    (product,) = read_gold(path, {"Coffee": SCHEMA} if with_schemas else None)
    return dict(product.values)


def test_nothing_of_an_object_is_nothing_of_all_in_it(tmp_path: Path) -> None:
    assert read(tmp_path, {"size": None}) == {"size.width": ABSENT, "size.lid.closure": ABSENT}
    assert read(tmp_path, {"size": {"lid": None}}) == {"size.lid.closure": ABSENT}
    assert read(tmp_path, {"size": None}, with_schemas=False) == {"size": ABSENT}


@table(
    ("values", "message"),
    [
        ({"size": {"width": ["12"]}, "size.width": ["12"]}, "line 1: 'values': 'size.width' is labelled twice, in an "),
        ({"size": {"width": 12}}, "'values' > 'size.width': null (absent), a non-empty list of accepted forms"),
        ({"size": {"width": []}}, "'values' > 'size.width': null (absent), a non-empty list of accepted forms"),
        ({"size": {"lid": {}}}, "'values' > 'size.lid': a non-empty object"),
        ({"Brand": {"maker": ["Acme"]}}, "'Brand': the score of 'maker' is"),
        (nested([(("a",) * 30, ["x"])]), f"more than {MAX_DEPTH} objects within each other"),
        ({"size": {"\ud83d": ["x"]}}, "the name holds half a surrogate pair"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_text(json.dumps(ours(**values)), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_gold(str(path), {"Coffee": SCHEMA})
    assert message in str(caught.value)


names = st.text("abc", min_size=1, max_size=3)
labels = st.lists(st.sampled_from(["12", "zip", "Acme"]), min_size=1, max_size=2)
trees = st.recursive(labels, lambda inner: st.dictionaries(names, inner, min_size=1, max_size=3), max_leaves=6)


@settings(max_examples=examples(60))
@given(st.dictionaries(names, trees, min_size=1, max_size=3))
def test_every_tree_of_labels_is_read_by_whole_names(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]
) -> None:
    expected = {dotted(place): GoldValue((tuple(forms),)) for place, forms in flattened(tree)}
    assert read(tmp_path_factory.mktemp("drawn"), tree, with_schemas=False) == expected
