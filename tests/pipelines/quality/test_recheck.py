"""hpd evaluate --recheck: labels that runs contradict with one voice, and the gold file without them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from hpd_core import Attribute, CategorySchema
from pipelines.evaluate import app
from pipelines.quality.doubtful_labels import DoubtfulLabel, DoubtKind, recheck_labels
from pipelines.quality.gold import parse_gold
from pipelines.quality.gold_split import without_doubtful
from pipelines.quality.scoring import Answer
from tests.examples import examples
from tests.pipelines.evaluating.made_runs import ABSENT, INVALID, TRUNCATED, Row, write_run
from tests.pipelines.evaluating.made_runs import Answer as Made
from tests.tables import table


def gold_file(folder: Path, *labels: Mapping[str, Any], **more: Any) -> str:
    path = folder / "labels.jsonl"
    lines = [
        {"product_id": f"p{row}", "category": "Coffee", "values": dict(values)} | more
        for row, values in enumerate(labels)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def runs(folder: Path, *answers: Sequence[Mapping[str, Made] | None], **options: Any) -> list[str]:
    """A run for each sequence of products' answers."""
    return [
        write_run(folder / f"run-{number}", [Row(f"p{row}", each) for row, each in enumerate(products)], **options)
        for number, products in enumerate(answers)
    ]


def recheck(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--recheck"])


def test_what_all_runs_say_alike_and_the_label_does_not_is_doubtful(tmp_path: Path) -> None:
    brands: list[tuple[Any, Made, Made, str]] = [
        (["Acme"], "Acme", "acme ", "right"),
        (["Acme", "ACME Inc"], "ACME Inc", "Apex", "split"),
        (["Acme"], "Apex", "APEX", "other_value"),
        (["Acme"], "Apex", "Zenith", "wrong"),
        (["Acme"], ABSENT, ABSENT, "no_value"),
        (["Acme"], ABSENT, "Apex", "wrong"),
        (["Acme"], TRUNCATED, TRUNCATED, "silent"),
        (["Acme"], INVALID, "Acme", "silent"),
        (None, TRUNCATED, ABSENT, "silent"),
        (None, ABSENT, ABSENT, "right"),
        (None, "Apex", "Apex", "a_value"),
        ([["Acme"], ["Apex"]], ["Apex", "Acme"], ["Acme", "Apex"], "right"),
        ([["Acme"], ["Apex"]], ["Zenith", "Acme"], ["acme", "Zenith"], "other_value"),
    ]
    gold = gold_file(tmp_path, *({"Brand": label} for label, *_ in brands))
    first, second = runs(tmp_path, [{"Brand": each[1]} for each in brands], [{"Brand": each[2]} for each in brands])
    found = recheck_labels([first, second], gold)
    expected = [each[3] for each in brands]
    assert found.summary() == {
        "gold": gold,
        "num_gold_products": 13,
        "num_products": 13,
        "num_labels": 13,
        "num_silent": 3,
        "num_right": expected.count("right"),
        "num_split": expected.count("split"),
        "num_wrong": expected.count("wrong"),
        "num_doubtful": 4,
        "kinds": {"other_value": 2, "no_value": 1, "a_value": 1},
        "notes": [],
    }
    doubtful = {each.product.row: each for each in found.doubtful}
    assert {row: each.kind.name.lower() for row, each in doubtful.items()} == {
        row: kind for row, kind in enumerate(expected) if kind in found.summary()["kinds"]
    }
    assert (str(doubtful[10].gold), str(doubtful[10].answer)) == ("(absent)", "Apex")


def test_what_a_run_has_not_gave_up_or_was_not_asked_is_not_doubted(tmp_path: Path) -> None:
    gold = gold_file(tmp_path, *[{"Brand": ["Acme"]}] * 3, {"Brand": ["Acme"], "Origin": ["Peru"]})
    wrong = {"Brand": "Apex"}
    pair = runs(tmp_path, [wrong, wrong, wrong, wrong], [wrong, None, wrong], schemas={"Coffee": ["Brand"]})
    found = recheck_labels(pair, gold)
    assert (found.num_gold_products, found.num_products, found.num_labels, found.num_silent) == (4, 3, 3, 1)
    assert [each.product.name for each in found.doubtful] == ["p0", "p2"]
    alone = recheck_labels(pair[:1], gold)
    assert [each.attribute for each in alone.doubtful] == ["Brand"] * 4
    assert alone.notes == [f"Coffee: 1 labels of 'Origin', which {pair[0]} was not asked for"]


def test_what_people_said_is_no_models_voice(tmp_path: Path) -> None:
    gold = gold_file(tmp_path, {"Brand": ["Acme"], "Roast": ["dark"]})
    rows = [Row("p0", {"Brand": "Apex", "Roast": "light"}, reviewed=["Brand"])]
    found = recheck_labels([write_run(tmp_path / name, rows) for name in "ab"], gold)
    assert [each.attribute for each in found.doubtful] == ["Roast"]
    assert found.num_silent == 1


@table("place", ["labels.jsonl", "folder", "folder/", "labels.jsonl/kept.jsonl", "labels.jsonl/a/kept.jsonl", "..", ""])
def test_no_other_file_is_written_over(tmp_path: Path, place: str) -> None:
    gold = gold_file(tmp_path, {"Brand": ["Acme"]})
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("x")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (run,) = runs(tmp_path, [{"Brand": "Apex"}])
    result = recheck(run, "--gold", gold, "--out", f"{tmp_path}/{place}")
    assert result.exit_code == 2, result.output
    assert "Error: " in result.output
    assert "Labels" not in result.output, "nothing is shown of what could not be written"
    assert {path: path.read_bytes() for path in before} == before


def test_what_no_command_reads_stays_in_the_line(tmp_path: Path) -> None:
    """Half a surrogate pair, an earlier doubt, a line ending of another system."""
    more = {"note": "\ud83d", "doubtful": {"Roast": {"label": ["dark"]}}}
    gold, out = gold_file(tmp_path, {"Brand": ["Acme"]}, **more), tmp_path / "kept.jsonl"
    Path(gold).write_bytes(Path(gold).read_bytes().replace(b"\n", b"\r\n"))
    (run,) = runs(tmp_path, [{"Brand": "Apex"}])
    assert recheck(run, "--gold", gold, "--out", str(out)).exit_code == 0
    assert out.read_bytes().endswith(b"}\r\n")
    entry = json.loads(out.read_text())
    assert entry["note"] == "\ud83d"
    assert set(entry["doubtful"]) == {"Roast", "Brand"}


SCHEMAS = {
    "Cups": CategorySchema(
        category="Cups",
        attributes=(
            Attribute(name="Brand", aliases=("Maker",)),
            Attribute(name="lid.kind", path=("lid", "kind")),
            Attribute(name="lid.size", path=("lid", "size")),
            Attribute(name="Notes", multiple=True),
        ),
    )
}
VALUE = st.sampled_from([None, ["Acme"], ["Acme", "ACME Inc"], [["Acme"], ["Apex", "apex"]]])
FORMS = st.sampled_from([{"n/a": 1}, {"Acme": 1}, {"Acme": 1, "ACME Inc": [[0, 3]]}])
EVIDENCES = st.sampled_from([[], [{"value": "Acme", "pid": 0, "begin": 0, "end": 4}]])
LIDS = st.one_of(st.none(), st.fixed_dictionaries({}, optional={"kind": VALUE, "size": VALUE}).filter(bool))
OURS = st.fixed_dictionaries({}, optional={"Brand": VALUE, "Maker": VALUE, "lid": LIDS, "Notes": VALUE, "other": VALUE})
EXTRACTGPT = st.dictionaries(st.sampled_from(["Brand", "Maker", "Notes"]), FORMS)
MAVE = st.dictionaries(st.sampled_from(["Maker", "Notes", "other"]), EVIDENCES)


def line_of(layout: str, number: int, labels: Mapping[str, Any]) -> dict[str, Any]:
    if layout == "ours":
        review = {"review": {"corrected": ["Maker"]}} if "Maker" in labels else {}
        return {"product_id": f"p{number}", "category": "Cups", "values": labels} | review
    if layout == "extractgpt":
        return {"input": "Acme cup", "category": "Cups", "target_scores": labels}
    pairs = [{"key": key, "evidences": evidences} for key, evidences in labels.items()]
    return {"id": f"p{number}", "category": "Cups", "paragraphs": [], "attributes": pairs}


@settings(max_examples=examples(100))
@given(st.data())
def test_what_is_left_out_is_no_label_and_all_else_is_what_it_was(data: st.DataObject) -> None:
    layouts = {"ours": OURS, "extractgpt": EXTRACTGPT, "mave": MAVE}
    kinds = data.draw(
        st.lists(st.sampled_from([*layouts, "blank"]), min_size=1, max_size=6).filter(set(layouts).intersection)
    )
    lines = [
        b"" if kind == "blank" else json.dumps(line_of(kind, row, data.draw(layouts[kind]))).encode()
        for row, kind in enumerate(kinds)
    ]
    before = parse_gold(lines, "g", [SCHEMAS])
    pairs = [(product, name) for product in before for name in product.values]
    gone = data.draw(st.lists(st.sampled_from(pairs), unique_by=lambda each: (each[0].row, each[1]))) if pairs else []
    doubtful = [
        DoubtfulLabel(product, name, product.values[name], Answer("value", ("Zenith",)), DoubtKind.OTHER_VALUE, 0.5)
        for product, name in gone
    ]
    kept = without_doubtful(lines, doubtful, "g")
    after = parse_gold(kept, "g", [SCHEMAS])
    assert [each.row for each in after] == [each.row for each in before]
    taken = {(product.row, name) for product, name in gone}
    for old, new in zip(before, after, strict=True):
        left = {name: each for name, each in old.values.items() if (old.row, name) not in taken}
        assert dict(new.values) == left
        assert (new.product_id, new.category, new.fields) == (old.product_id, old.category, old.fields)
        assert new.corrected == (old.corrected and old.corrected - {name for row, name in taken if row == old.row})
        assert new.contradicted == old.contradicted
        if not any(row == old.row for row, _ in taken):
            assert kept[old.row] == lines[old.row]
        was, is_now = (json.loads(each[old.row]).get("values", {}) for each in (lines, kept))
        assert all(was[name] == label for name, label in is_now.items() if name != "lid"), "as it was written"
