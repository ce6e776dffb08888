"""hpd label --split: a test file that nothing is trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from pipelines.label import app
from pipelines.quality.gold import read_gold
from tests.tables import table


def gold_line(number: int, text: str | None = None) -> dict[str, Any]:
    fields = {"title": text or f"Velor shoe {number}", "bullets": "söft"}
    return {"product_id": f"p{number}", "category": "Shoes", "values": {"Brand": ["Velor"]}, "input": fields}


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def split(*arguments: Any) -> Result:
    return CliRunner().invoke(app, ["--split", *map(str, arguments)])


def ids(path: Path) -> list[str]:
    return [json.loads(line)["product_id"] for line in path.read_text().splitlines()]


def test_variants_of_a_product_are_on_one_side(tmp_path: Path) -> None:
    titles = (
        "Velor shirt {} in red, size {}",
        "Osprey V-neck tee {} - {}",
        "Kestrel socks {} ({}, cotton)",
        "Belt {} {}",
    )
    lines = [
        gold_line(4 * model + number, title.format(model, size)) | {"parent": model, "category": title[:4]}
        for title in titles
        for model in range(30)
        for number, size in enumerate(("S", "XL", "Red, M", "42"))
    ]
    for number, line in enumerate(lines):
        line["product_id"] = f"p{number}"
    for arguments, num_siblings in ((), 3 * 120 + 60), (("--split-group", "parent"), 480):
        folder = tmp_path / str(num_siblings)
        result = split(write(tmp_path / "shop.jsonl", lines), "--split-share", 0.2, "--split-out", folder, *arguments)
        assert f"\n{num_siblings} have siblings" in result.output
        test = {int(name[1:]) for name in ids(folder / "shop.test.jsonl")}
        families = [{4 * family + number for number in range(4)} for family in range(120 if arguments else 90)]
        assert all(len(test & family) in (0, 4) for family in families)
        assert 40 < len(test) < 160
    result = split(tmp_path / "shop.jsonl", "--split-group", "sku", "--split-out", tmp_path / "none")
    assert (result.exit_code, "shop.jsonl, line 1" in result.output) == (2, True)


def test_every_line_is_on_one_side_as_it_was(tmp_path: Path) -> None:
    gold = write(tmp_path / "shoes.jsonl", [gold_line(number) for number in range(400)])
    gold.write_text("\n" + gold.read_text().rstrip("\n"))  # a blank line, none at the end
    result = split(gold, "--split-share", 0.2)
    assert result.exit_code == 0, result.output
    train, test = tmp_path / "shoes.train.jsonl", tmp_path / "shoes.test.jsonl"
    assert sorted(train.read_text().splitlines() + test.read_text().splitlines()) == sorted(
        gold.read_text().split("\n")[1:]
    )
    assert 50 < len(ids(test)) < 110
    assert [product.product_id for product in read_gold(str(test))] == ids(test)
    rows = [json.loads(line) for line in (tmp_path / "shoes.test-products.jsonl").read_text().splitlines()]
    wanted = [gold_line(int(name[1:])) for name in ids(test)]
    assert rows == [{"product_id": x["product_id"], "category": "Shoes", **x["input"]} for x in wanted]
    assert f"{len(ids(test))} for the test:" in result.output
    settings = (
        f"path: {tmp_path}/shoes.test-products.jsonl, id: product_id, category: category, fields: [title, bullets], "
        f"html: never"
    )
    assert f"--set 'input={{{settings}}}'" in result.output
    assert split(gold, "--split-share", 0.2).exit_code == 0, "there already, and the same"


def test_a_grown_file_keeps_its_test_products(tmp_path: Path) -> None:
    lines = [gold_line(number) for number in range(600)]
    few, many = write(tmp_path / "few.jsonl", lines[:300]), write(tmp_path / "many.jsonl", lines)
    for gold in (few, many):
        assert split(gold, "--split-out", tmp_path / "out").exit_code == 0
    small, large = ids(tmp_path / "out/few.test.jsonl"), ids(tmp_path / "out/many.test.jsonl")
    assert small == [name for name in large if int(name[1:]) < 300]


def test_corrected_labels_are_not_overwritten(tmp_path: Path) -> None:
    gold = write(tmp_path / "g.jsonl", [gold_line(number) for number in range(100)])
    assert split(gold).exit_code == 0
    test = tmp_path / "g.test.jsonl"
    corrected = test.read_text().replace("Velor", "Velora", 1)
    test.write_text(corrected)
    (tmp_path / "g.train.jsonl").unlink()
    result = split(gold)
    assert result.exit_code == 2
    assert "g.test.jsonl is there and holds other lines" in result.stderr
    assert test.read_text() == corrected
    assert not (tmp_path / "g.train.jsonl").exists(), "all or nothing"


@table(
    ("lines", "options", "message"),
    [
        ([{"category": "A", "input": "x", "target_scores": {}}], [], "line 1: no 'product_id', or no 'input'"),
        ([{"product_id": "1", "category": "A", "values": {}}], [], "line 1: no 'product_id', or no 'input'"),
        (
            [{"product_id": "\ud83d", "category": "A", "values": {}, "input": {"title": "A"}}],
            [],
            "line 1: 'product_id': holds half a surrogate pair",
        ),
        ([gold_line(1)], [], "1 products are too few for --split-share 0.1: one side has none"),
        ([gold_line(1)], ["--split-share", "1.5"], "--split-share 1.5: a number between 0 and 1"),
        ([], [], "the gold file is empty"),
    ],
)
def test_wrong_use(tmp_path: Path, lines: list[dict[str, Any]], options: list[str], message: str) -> None:
    result = split(write(tmp_path / "g.jsonl", lines), *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.jsonl"]
