"""Attributes that would go into one column of a shop's file: of one name they may, of two only if somebody says so."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from pathlib import Path

from hpd_core import Attribute, CategorySchema
from tests.pipelines.evaluating.made_runs import Row
from tests.pipelines.exporting.made_runs import ask, exported, write_shop_run
from tests.tables import table

HEADS = {"shopify": ("Handle", "Title"), "akeneo": ("sku", "family")}


def write(folder: Path, kind: str, attributes: Sequence[Attribute], more_head: str = "", **answers: str) -> str:
    """A run of one product on a file of the kind's; without answers, each attribute has one."""
    id_column, other = HEADS[kind]
    between = ";" if kind == "akeneo" else ","
    path = folder / "shop.csv"
    path.write_text(
        f"{id_column}{between}{other}{more_head}\na{between}x{between * bool(more_head)}\n", encoding="utf-8"
    )
    schemas = {"A": CategorySchema(category="A", attributes=tuple(attributes))}
    rows = [Row("a", answers or {each.name: "5" for each in attributes}, "5", "A", 0)]
    return write_shop_run(folder / "run", path, "csv", id_column, rows, schemas=schemas)


def filled(uri: str, out: Path, kind: str, *options: str) -> dict[str, str]:
    exported(uri, "--to", kind, "--out", str(out), *options)
    with open(out, encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file, delimiter=";" if kind == "akeneo" else ",")
    return row


@table(
    ("kind", "names"),
    [
        ("shopify", ("Размер EU", "Ширина EU")),
        *itertools.product(HEADS, [("Max. load", "Max load"), ("Größe", "Grosse"), ("max load", "Max_Load")]),
    ],
)
def test_two_names_are_no_column(tmp_path: Path, kind: str, names: tuple[str, str]) -> None:
    """Also where the products of this run have only one of them: the next run may have the other."""
    one, other = names
    uri = write(tmp_path, kind, [Attribute(name=one), Attribute(name=other)], **{one: "5"})
    out = tmp_path / "new.csv"
    code, _, error = ask(uri, "--to", kind, "--out", str(out))
    assert (code, repr(one) in error, repr(other) in error) == (2, True, True), error
    assert f"--columns '{other}=COLUMN'" in error
    assert not out.exists()
    assert "5" in filled(uri, out, kind, "--columns", f"{other}=").values()


def test_a_name_that_loses_letters_is_no_code_of_akeneos(tmp_path: Path) -> None:
    """`eu` may be another attribute's, which the file may have."""
    uri = write(tmp_path, "akeneo", [Attribute(name="Размер EU")])
    assert "eu" not in filled(uri, tmp_path / "new.csv", "akeneo")
    assert filled(uri, tmp_path / "named.csv", "akeneo", "--columns", "Размер EU=size_eu")["size_eu"] == "5"


def test_a_column_of_the_file_is_not_for_two_names(tmp_path: Path) -> None:
    """One has its key, the other its label."""
    attributes = [Attribute(name="Material"), Attribute(name="Stuff")]
    uri = write(tmp_path, "shopify", attributes, ",Stuff (product.metafields.custom.material)")
    code, _, error = ask(uri, "--to", "shopify", "--out", str(tmp_path / "new.csv"))
    assert (code, "'Material'" in error, "'Stuff'" in error) == (2, True, True), error
