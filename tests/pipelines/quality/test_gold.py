"""Both layouts are read as they are meant, and whatever is wrong is said with file, line and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import UsageError
from pipelines.quality.gold import GoldValue, read_gold


def write(path: Path, *lines: Any) -> str:
    texts = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return str(path)


def ours(**values: Any) -> dict[str, Any]:
    return {"product_id": "p1", "category": "Coffee", "values": values}


def theirs(**scores: Any) -> dict[str, Any]:
    return {"input": "a title", "category": "Coffee", "target_scores": scores}


def test_our_layout(tmp_path: Path) -> None:
    line = ours(Brand=["Acme", "ACME Inc."], Roast=None, Origin=[["Colombia"], ["Brazil", "Brasil"]])
    (product,) = read_gold(write(tmp_path / "gold.jsonl", line))
    assert (product.product_id, product.category, product.row) == ("p1", "Coffee", 0)
    assert product.values == {
        "Brand": GoldValue((("Acme", "ACME Inc."),)),
        "Roast": GoldValue(()),
        "Origin": GoldValue((("Colombia",), ("Brazil", "Brasil"))),
    }
    assert product.values["Roast"].is_absent
    assert str(product.values["Origin"]) == "Colombia; Brazil | Brasil"


def test_extractgpt_layout(tmp_path: Path) -> None:
    line = theirs(Brand={"Acme": 1}, Roast={"n/a": 1}, Form={"pods": 1, "capsules": 1})
    (product,) = read_gold(write(tmp_path / "gold.jsonl", line))
    assert product.product_id is None
    assert product.name == "row 0"
    assert product.values == {
        "Brand": GoldValue((("Acme",),)),
        "Roast": GoldValue(()),
        "Form": GoldValue((("pods", "capsules"),)),
    }


def test_the_first_key_decides_whether_a_value_is_absent(tmp_path: Path) -> None:
    """AE-110k labels some attributes with "n/a" and values at once; ExtractGPT looks at the first key."""
    line = theirs(Function={"n/a": 1, "Cycling": 1}, Feature={"Cycling": 1, "n/a": 1})
    (product,) = read_gold(write(tmp_path / "gold.jsonl", line))
    assert product.values["Function"].is_absent
    assert product.values["Feature"] == GoldValue((("Cycling",),))


def test_surrounding_white_space_of_accepted_forms_is_dropped(tmp_path: Path) -> None:
    """OA-Mine has "Japan " and " SPF 30"; ExtractGPT strips gold values, too."""
    path = write(tmp_path / "gold.jsonl", theirs(Country={"Japan ": 1}), ours(Country=[" Japan"]))
    for product in read_gold(path):
        assert product.values["Country"] == GoldValue((("Japan",),))


def test_layouts_are_told_apart_line_by_line_and_blank_lines_keep_their_number(tmp_path: Path) -> None:
    path = write(tmp_path / "gold.jsonl", theirs(Brand={"A": 1}), "", ours(Brand=["B"]), "", "")
    assert [(product.row, product.product_id) for product in read_gold(path)] == [(0, None), (2, "p1")]


def test_byte_order_mark_windows_line_ends_and_line_separators_in_text(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    text = json.dumps(ours(Brand=["A\u2028B"]), ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n")
    (product,) = read_gold(str(path))
    assert product.values["Brand"] == GoldValue((("A\u2028B",),))


def test_an_unlabelled_attribute_is_not_an_absent_one(tmp_path: Path) -> None:
    (product,) = read_gold(write(tmp_path / "gold.jsonl", ours(Brand=["A"])))
    assert "Roast" not in product.values


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "a JSON object is needed, not a list"),
        ({"values": {}}, "key 'category' is missing"),
        ({"category": "Coffee", "values": {}}, "key 'product_id' is missing"),
        ({"product_id": "p1", "category": None, "values": {}}, "'category' must be a non-empty text, not null"),
        ({"product_id": "", "category": "C", "values": {}}, "'product_id' must be .*, not an empty text"),
        ({"product_id": 7, "category": "C", "values": {}}, "'product_id' must be .*, not a number"),
        ({"product_id": "p", "category": "C", "values": []}, "'values' must be an object, not a list"),
        ({"product_id": "p", "category": "C"}, "neither 'values' .* nor 'target_scores'"),
        ({**ours(), "target_scores": {}}, "has both"),
        (ours(Brand="Acme"), "'values' > 'Brand': null .* or a list of such lists is needed"),
        (ours(Brand=[]), "'values' > 'Brand': null"),
        (ours(Brand=[7]), "'values' > 'Brand': texts and lists are mixed"),
        (ours(Brand=["a", ["b"]]), "'values' > 'Brand': texts and lists are mixed"),
        (ours(Brand=[["a"], []]), "'values' > 'Brand', item 1: the list of accepted forms is empty"),
        (ours(Brand=[["a"], [7]]), "item 1: an accepted form must be text, not a number: 7"),
        (ours(Brand=[" "]), "'values' > 'Brand': an accepted form is empty"),
        (ours(Brand=["n/a"]), "'n/a' never counts as a value; write null"),
        (theirs(Brand={}), "'target_scores' > 'Brand': a non-empty object"),
        (theirs(Brand=["Acme"]), "'target_scores' > 'Brand': a non-empty object"),
        (theirs(Brand={"Acme": 0}), "'target_scores' > 'Brand': the score of 'Acme' is 0"),
        (theirs(Brand={" ": 1}), "'target_scores' > 'Brand': an accepted form is empty"),
        ('{"category": "C", "target_scores": {"A": {"x": 1}, "A": {"y": 1}}}', "key 'A' is written twice"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: Any, message: str) -> None:
    path = write(tmp_path / "gold.jsonl", {**ours(Brand=["A"]), "product_id": "good"}, line)
    with pytest.raises(UsageError, match=message) as caught:
        read_gold(path)
    assert str(caught.value).startswith(f"{path}, line 2: ")


def test_a_doubled_id_names_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "gold.jsonl", ours(Brand=["A"]), "", ours(Brand=["B"]))
    with pytest.raises(UsageError, match="line 3: product_id 'p1' stands in line 1 already"):
        read_gold(path)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such gold file: .*nowhere\.jsonl"):
        read_gold(str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(UsageError, match="is a folder"):
        read_gold(str(tmp_path))
    with pytest.raises(UsageError, match="the gold file is empty"):
        read_gold(write(tmp_path / "empty.jsonl", "", ""))
    with pytest.raises(UsageError, match="cannot open nosuch://gold"):
        read_gold("nosuch://gold")
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(b'{"category": "Caf\xe9"}')
    with pytest.raises(UsageError, match="line 1: not UTF-8 text"):
        read_gold(str(latin))


form = st.text(min_size=1).map(str.strip).filter(lambda text: text and text not in {"n/a", "None"})
forms = st.lists(form, min_size=1, max_size=3)
anything = st.none() | forms | st.lists(forms, min_size=1, max_size=3)


@given(values=st.dictionaries(st.text(), anything, max_size=4))
def test_any_values_are_read_back(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("gold") / "gold.jsonl"
    path.write_text(json.dumps({"product_id": "p", "category": "C", "values": values}))
    (product,) = read_gold(str(path))
    assert product.values.keys() == values.keys()
    for name, value in values.items():
        items = [] if value is None else [value] if isinstance(value[0], str) else value
        assert [list(item) for item in product.values[name].items] == items
