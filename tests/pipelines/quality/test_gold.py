"""Both layouts are read as they are meant, and whatever is wrong is said with file, line and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Member
from hpd_core.text import absence
from pipelines.errors import UsageError
from pipelines.quality.gold import GoldValue, read_gold
from tests.tables import table


def write(path: Path, *lines: Any) -> str:
    texts = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return str(path)


def ours(**values: Any) -> dict[str, Any]:
    return {"product_id": "p1", "category": "Coffee", "values": values}


def theirs(**scores: Any) -> dict[str, Any]:
    return {"input": "a title", "category": "Coffee", "target_scores": scores}


def mave(**evidences: Any) -> dict[str, Any]:
    attributes = [{"key": name, "evidences": found} for name, found in evidences.items()]
    texts = [("Acme beans", "title"), ("Dark. By ACME", "description"), ("250 g", "description")]
    paragraphs = [{"text": text, "source": source} for text, source in texts]
    return {"id": "p2", "category": "Coffee", "paragraphs": paragraphs, "attributes": attributes}


def test_surrounding_white_space_of_accepted_forms_is_dropped(tmp_path: Path) -> None:
    """OA-Mine has "Japan " and " SPF 30"; ExtractGPT strips gold values, too."""
    path = write(tmp_path / "gold.jsonl", theirs(Country={"Japan ": 1}), ours(Country=[" Japan"]))
    for product in read_gold(path):
        assert product.values["Country"] == GoldValue((("Japan",),))


@table(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "a JSON object is needed, not a list"),
        ({"values": {}}, "key 'category' is missing"),
        ({"category": "Coffee", "values": {}}, "key 'product_id' is missing"),
        ({"product_id": "p1", "category": None, "values": {}}, "'category' must be a non-empty text, not null"),
        ({"product_id": "", "category": "C", "values": {}}, "'product_id' must be .*, not an empty text"),
        ({"product_id": "p", "category": "C", "values": []}, "'values' must be an object, not an empty list"),
        ({"product_id": "p", "category": "C"}, "neither of the known layouts: ours is"),
        ({**ours(), "target_scores": {}}, "has both"),
        (
            ours(Brand="Acme"),
            "'values' > 'Brand': null .* or a list of such lists is needed, not a text: .* is one value",
        ),
        (ours(Brand=[7]), "'values' > 'Brand': an accepted form must be text, not a number: 7"),
        (ours(Brand=["a", ["b"]]), "'values' > 'Brand': texts and lists are mixed"),
        (ours(Brand=[["a"], []]), "'values' > 'Brand', item 1: the list of accepted forms is empty"),
        (ours(Brand=[" "]), "'values' > 'Brand': an accepted form is empty"),
        (ours(Brand=["n/a"]), "'n/a' never counts as a value; write null"),
        (theirs(Brand={}), "'target_scores' > 'Brand': a non-empty object"),
        (theirs(Brand={"Acme": 0}), "'target_scores' > 'Brand': the score of 'Acme' is 0; only 1 and positions"),
        (theirs(Brand={"Acme": {"pid": [0], "score": 0}}), "the score of 'Acme' is .*<positions>"),
        (ours(Brand={}), "'values' > 'Brand': a non-empty object"),
        (ours(Brand={"Acme": "yes"}), "'values' > 'Brand': the score of 'Acme' is \"yes\""),
        (mave(Brand=[{"pid": 0}]), "'attributes' > 'Brand': key 'value' is missing"),
        ({**mave(Brand=[]), "id": None}, "'id' must be a non-empty text, not null"),
        (
            {**mave(), "attributes": [{"key": "Brand", "evidences": []}, {"key": "Brand", "evidences": []}]},
            "'attributes' > 'Brand': stands twice",
        ),
        (ours(Brand=["Acme", "None"]), "'None' never counts .* member of an enum .* name that the line's own 'input'"),
        ('{"category": "C", "target_scores": {"A": {"x": 1}, "A": {"y": 1}}}', "key 'A' is written twice"),
        (ours(**{"": ["x"], "Brand": ["y"]}), "'values' > '': the name '' is blank; write what is meant"),
        (ours(size={"": ["x"], "width": None}), "'values' > 'size.': the name '' is blank"),
        (mave(**{"\u2003": []}), r"'attributes': 'key': the name '\\u2003' is blank"),
        ({**ours(), "category": " "}, "'category': the name ' ' is blank"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: Any, message: str) -> None:
    path = write(tmp_path / "gold.jsonl", {**ours(Brand=["A"]), "product_id": "good"}, line)
    with pytest.raises(UsageError, match=message) as caught:
        read_gold(path)
    assert str(caught.value).startswith(f"{path}, line 2: ")


def test_numbers_and_nestings_without_end(tmp_path: Path) -> None:
    digits = "7" * 5000
    for line, message in (
        (f'{{"product_id": {digits}, "category": "C", "values": {{}}}}', "a number of 5000 digits.* written in quotes"),
        (f'{{"category": "C", "target_scores": {{"A": {{"x": -{digits}}}}}}}', "a number of 5001 digits"),
        ('{"category": "C", "values": ' + "[" * 100_000, "nested too deeply"),
    ):
        with pytest.raises(UsageError, match=f"line 1: .*{message}"):
            read_gold(write(tmp_path / "gold.jsonl", line))


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


@table("places", [1, 1.0, True, [0, 4], [[0, 4], [9, 13]], {"pid": [0, 1], "score": 1}, {"pid": [0]}, {"score": 1}])
@table("line", [ours, theirs])
def test_forms_with_their_places(tmp_path: Path, line: Any, places: Any) -> None:
    """As WDC PAVE has them; "n/a" keeps its 1 there."""
    path = write(tmp_path / "gold.jsonl", line(Brand={"Acme": places, "ACME": places}, Roast={"n/a": 1}))
    (product,) = read_gold(path)
    assert product.values == {"Brand": GoldValue((("Acme", "ACME"),)), "Roast": GoldValue(())}


def test_maves_layout(tmp_path: Path) -> None:
    found = [{"value": "Acme", "pid": 0, "begin": 0, "end": 4}, {"value": "ACME", "pid": 1, "begin": 9, "end": 13}]
    (product,) = read_gold(write(tmp_path / "gold.jsonl", mave(Brand=[*found, *found], Roast=[])))
    assert (product.product_id, product.category) == ("p2", "Coffee")
    assert product.values == {"Brand": GoldValue((("Acme", "ACME"),)), "Roast": GoldValue(())}
    assert product.fields == {"title": "Acme beans", "description": "Dark. By ACME\n250 g"}


form = st.text(min_size=1).map(str.strip).filter(lambda text: text and absence.read(text, "") is absence.Reading.VALUE)
forms = st.lists(form, min_size=1, max_size=3)
anything = st.none() | forms | st.lists(forms, min_size=1, max_size=3)


@given(values=st.dictionaries(st.text().filter(str.strip), anything, max_size=4))
def test_any_values_are_read_back(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("gold") / "gold.jsonl"
    path.write_text(json.dumps({"product_id": "p", "category": "C", "values": values}))
    (product,) = read_gold(str(path))
    assert product.values.keys() == values.keys()
    for name, value in values.items():
        items = [] if value is None else [value] if isinstance(value[0], str) else value
        assert [list(item) for item in product.values[name].items] == items


SCHEMAS = {
    "Coffee": CategorySchema(
        category="Coffee",
        attributes=(
            Attribute(name="Color"),
            Attribute(name="color (2)", id="color"),
            Attribute(name="Weight", id="net_weight", aliases=("Net weight", "Grams")),
            Attribute(name="Roast", type="enum", aliases=("Grams",), values=(Member(label="none", id="r0"),)),
        ),
    )
}


def test_an_attribute_may_be_called_by_its_id_or_alias(tmp_path: Path) -> None:
    values = {"Color": ["red"], "color": ["blue"], "net_weight": ["5"], "Grams": ["6"], "Other": None}
    (product,) = read_gold(write(tmp_path / "g.jsonl", ours(**values)), SCHEMAS)
    expected = {"Color": "red", "color (2)": "blue", "Weight": "5", "Grams": "6", "Other": "(absent)"}
    assert {name: str(value) for name, value in product.values.items()} == expected
    assert product.renamed == {"color": "color (2)", "net_weight": "Weight"}
    # Where two attributes have the alias, and without schemas, nothing is known.
    assert read_gold(write(tmp_path / "g.jsonl", ours(**values)))[0].values.keys() == values.keys()
    reviewed = ours(net_weight=["5"]) | {"review": {"corrected": ["net_weight"]}}
    assert read_gold(write(tmp_path / "g.jsonl", reviewed), SCHEMAS)[0].corrected == {"Weight"}
    (other,) = read_gold(write(tmp_path / "g.jsonl", mave(**{"Net weight": [{"value": "250 g"}]})), SCHEMAS)
    assert list(other.values) == ["Weight"]


@pytest.mark.parametrize(
    ("one", "two", "joined"),
    [
        (["5"], ["5"], (("5",),)),
        (None, None, ()),
        (["5"], ["5", "5.0"], (("5", "5.0"),)),
        (["a kilo"], ["A kilo"], (("a kilo", "A kilo"),)),
        ([["5"], ["6"]], [["6"], ["5", "5.0"]], (("5", "5.0"), ("6",))),
        (["5"], ["6"], None),
        (["5"], None, None),
        ([["5"], ["6"]], ["5"], None),
    ],
)
def test_two_labels_of_one_attribute_are_one_or_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, one: Any, two: Any, joined: Any
) -> None:
    reviewed = {"review": {"corrected": ["net_weight", "Color"]}}
    line = ours(Weight=one, net_weight=two, Color=["red"]) | reviewed
    (product,) = read_gold(write(tmp_path / "g.jsonl", line), SCHEMAS)
    assert product.values["Color"].items == (("red",),), "the rest of the line counts"
    if joined is not None:
        assert (product.values["Weight"].items, product.contradicted, caplog.messages) == (joined, {}, [])
        assert product.corrected == {"Weight", "Color"}
        return
    assert "Weight" not in product.values
    assert product.contradicted == {"Weight": ["Weight", "net_weight"]}
    assert product.corrected == {"Color"}
    (said,) = caplog.messages
    assert "1 answers count as not labelled" in said
    assert "line 1" in said
    assert "'Weight' and 'net_weight' both label the attribute 'Weight' of 'Coffee'" in said
