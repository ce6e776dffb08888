"""Shopify CSV in, enriched CSV out: answers in their columns, every other byte as it was."""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema
from tests.pipelines.evaluating.made_runs import Row
from tests.pipelines.exporting.made_runs import ask, bag, exported, write_shop_run
from tests.tables import table

COLOR = "Color (product.metafields.shopify.color-pattern)"
BRAND = "Brand (product.metafields.custom.brand)"
HEAD = f'Handle,Title,"Body, HTML",Option1 Name,Google Shopping / Gender,{COLOR},{BRAND}'
SHOP = (
    f"{HEAD}\r\n"
    'black-bag,"A ""black"" bag","two\r\nlines",Size,,,\r\n'
    "black-bag,,,,,,\r\n"
    "\r\n"
    'rose-bag,Rose 5" bag,<p>x</p>,Title,female,rose; black,Kona\r\n'
    'tea-1,"Tea, black",,Title,,,'
)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "products_export.csv"
    path.write_bytes(SHOP.encode())
    return path


def rows_of(path: str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_answers_go_into_their_columns(shop: Path, tmp_path: Path) -> None:
    rows = [bag("black-bag", row=0), bag("rose-bag", row=2), Row("tea-1", {"Brand": "Kona"}, "Kona", "Teas", 3)]
    uri = write_shop_run(tmp_path / "run", shop, "shopify", "Handle", rows)
    result = exported(uri, "--to", "shopify", "--out", str(tmp_path / "out"))
    assert result["files"] == [str(tmp_path / "out" / "products_export.csv")]
    first, variant, rose, tea = rows_of(result["files"][0])
    assert first[COLOR] == "black; rose-gold"
    assert first[BRAND] == "Acme"
    assert first["Width (product.metafields.custom.width)"] == '{"value": 35.56, "unit": "cm"}'
    assert first["Lined (product.metafields.custom.lined)"] == "true"
    assert not any(variant[name] for name in variant if name != "Handle"), "variants stay as they are"
    assert (rose[COLOR], rose[BRAND]) == ("rose; black", "Kona")
    assert tea[BRAND] == "Kona"
    assert result["left_out"] == {"the file has a value there; --overwrite replaces it": 2}
    before = rows_of(str(shop))
    pairs = zip(before, (first, variant, rose, tea), strict=True)
    assert result["values"] == sum(old.get(name, "") != cell for old, new in pairs for name, cell in new.items())
    assert "Width (product.metafields.custom.width)" in result["notes"][0]


_CELLS = st.text(st.sampled_from('ab",;\r\n\té日 \\'), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    rows=st.lists(st.lists(_CELLS, min_size=3, max_size=3), max_size=6),
    rest=st.sampled_from(["", "\n", "\r\n\r\n", '"never closed', ",,,\n", "a,b,c,,\n", "x\x00y,1,2\n"]),
    end=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
)
def test_without_answers_the_file_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], rest: str, end: str, encoding: str
) -> None:
    folder = tmp_path_factory.mktemp("same")
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([["Handle", "Title", "Option1 Name"], *rows])
    data = (text.getvalue() + rest).replace("日", "x" if encoding == "cp1252" else "日").encode(encoding)
    path = folder / "shop.csv"
    path.write_bytes(data)
    uri = write_shop_run(folder / "run", path, "shopify", "Handle", [Row("nobody", None, category="Bags", row=10**6)])
    config = folder / "run" / "_plan.json"
    if encoding == "cp1252":
        config.write_text(config.read_text().replace('"fields"', '"encoding": "cp1252", "fields"'))
    exported(uri, "--to", "shopify", "--out", str(folder / "new.csv"))
    assert (folder / "new.csv").read_bytes() == data


@table("bom", [b"", codecs.BOM_UTF8])
def test_new_columns_stand_behind_the_last_one(tmp_path: Path, bom: bytes) -> None:
    path = tmp_path / "shop.csv"
    path.write_bytes(bom + b'Handle,Title,Option1 Name\na,"x, y",Size\n\nbroken,"row\nb,z,Size,,\na')
    uri = write_shop_run(
        tmp_path / "run", path, "shopify", "Handle", [Row("a", {"Brand": 'Acme, "5\' 3"'}, "", "Bags", 0)]
    )
    exported(uri, "--to", "shopify", "--out", str(tmp_path / "new.csv"))
    rows = b'a,"x, y",Size,"Acme, ""5\' 3"""\n\nbroken,"row\nb,z,Size,,,\na'
    head = b"Handle,Title,Option1 Name," + BRAND.encode()
    assert (tmp_path / "new.csv").read_bytes() == bom + head + b"\n" + rows


def test_columns_are_named_by_the_user(shop: Path, tmp_path: Path) -> None:
    uri = write_shop_run(tmp_path / "run", shop, "shopify", "Handle", [bag("black-bag", row=0)])
    mapping = ["Brand=Option1 Name", "Color=", "Width=Width (product.metafields.my.width)", "Lined="]
    arguments = [part for each in mapping for part in ("--columns", each)]
    exported(uri, "--to", "shopify", "--out", str(tmp_path / "new.csv"), *arguments, "--overwrite")
    first = rows_of(str(tmp_path / "new.csv"))[0]
    assert (first["Option1 Name"], first[COLOR]) == ("Acme", "")
    assert first["Width (product.metafields.my.width)"].startswith("{")


def test_a_file_that_has_changed_is_refused(shop: Path, tmp_path: Path) -> None:
    rows = [bag("black-bag", row=0), bag("tea-1", row=3)]
    uri = write_shop_run(tmp_path / "run", shop, "shopify", "Handle", rows)
    other = tmp_path / "other.csv"
    # As long as it was.
    other.write_bytes(SHOP.replace("Rose", "Blue").encode())
    out = ["--to", "shopify", "--out", str(tmp_path / "out")]
    for arguments, message in (
        (["--original", str(other)], "is not the file that the run read"),
        (["--original", str(tmp_path / "none.csv")], "cannot read"),
    ):
        code, _, error = ask(uri, *out, *arguments)
        assert (code, message in error) == (2, True), error
    for changed in (other.read_bytes(), SHOP.encode() + b"\r\n"):
        shop.write_bytes(changed)
        assert "has changed since the run" in ask(uri, *out)[2]
    shop.unlink()
    assert "--original names the file that the run read" in ask(uri, *out)[2]
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir()), "nothing half-written is left"
    moved = tmp_path / "moved.csv"
    moved.write_bytes(SHOP.encode())
    assert exported(uri, *out, "--original", str(moved))["files"] == [str(tmp_path / "out" / shop.name)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SHOP.replace("tea-1", "tea-2"), "row 3: product 'tea-2', where the run read 'tea-1'"),
        (SHOP[: SHOP.index("rose-bag")], "ends before row 3"),
    ],
)
def test_rows_that_are_not_the_runs_are_refused(shop: Path, tmp_path: Path, text: str, message: str) -> None:
    """Also where the content is what the plan says, as a storage's own mark of it may be."""
    shop.write_bytes(text.encode())
    uri = write_shop_run(tmp_path / "run", shop, "shopify", "Handle", [bag("black-bag", row=0), bag("tea-1", row=3)])
    code, _, error = ask(uri, "--to", "shopify", "--out", str(tmp_path / "out"))
    assert (code, message in error) == (2, True), error


def test_a_run_in_another_order_fills_the_file_in_its_own(shop: Path, tmp_path: Path) -> None:
    rows = [Row("tea-1", {"Brand": "Kona"}, "Kona", "Teas", 3), bag("rose-bag", row=2), bag("black-bag", row=0)]
    uri = write_shop_run(tmp_path / "run", shop, "shopify", "Handle", rows, shard_rows=1)
    exported(uri, "--to", "shopify", "--out", str(tmp_path / "new.csv"))
    assert [row[BRAND] for row in rows_of(str(tmp_path / "new.csv"))] == ["Acme", "", "Kona", "Kona"]


@table(
    ("kind", "head", "attribute"),
    [
        ("shopify", "Handle,Title", "Handle"),
        ("akeneo", "sku;family", "SKU"),
    ],
)
def test_no_attribute_goes_into_what_says_which_product_it_is(
    tmp_path: Path, kind: str, head: str, attribute: str
) -> None:
    path = tmp_path / "shop.csv"
    path.write_text(f"{head}\n{'a;b' if ';' in head else 'a,b'}\n", encoding="utf-8")
    schemas = {"A": CategorySchema(category="A", attributes=(Attribute(name=attribute),))}
    id_column = "sku" if kind == "akeneo" else "Handle"
    rows = [Row("a", {attribute: "z"}, "z", "A", 0)]
    uri = write_shop_run(tmp_path / "run", path, "csv", id_column, rows, schemas=schemas)
    column = [] if kind == "akeneo" else ["--columns", f"{attribute}=handle"]
    arguments = [uri, "--to", kind, "--out", str(tmp_path / "new.csv"), "--overwrite"]
    code, _, error = ask(*arguments, *column)
    assert (code, "which says which product a row is" in error) == (2, True), error
    assert f"leave the attribute out with --columns '{attribute}='" in error
    assert not (tmp_path / "new.csv").exists()
    exported(*arguments, "--columns", f"{attribute}=")


def test_a_handle_that_several_values_of_the_schema_have_is_none(tmp_path: Path) -> None:
    """A product that has "C++" alone is not of the entry that "C" has in the shop."""
    path = tmp_path / "shop.csv"
    path.write_text(f"Handle,Title,{COLOR}\na,T,\nb,T,\n", encoding="utf-8")
    names = ("C", "C++", "Weiß", "weiss")
    values = [{"label": name, "id": f"gid://shopify/TaxonomyValue/{n}"} for n, name in enumerate(names)]
    color = {"name": "Color", "id": "gid://shopify/TaxonomyAttribute/1", "type": "enum", "multiple": True}
    schema = CategorySchema(category="A", attributes=(Attribute.model_validate(color | {"values": values}),))
    rows = [Row("a", {"Color": ["C++", "Weiß"]}, "", "A", 0), Row("b", {"Color": ["Weiß"]}, "", "A", 1)]
    uri = write_shop_run(tmp_path / "run", path, "shopify", "Handle", rows, schemas={"A": schema})
    result = exported(uri, "--to", "shopify", "--out", str(tmp_path / "new.csv"))
    assert [row[COLOR] for row in rows_of(str(tmp_path / "new.csv"))] == ["", "weiss"]
    assert result["left_out"] == {"several values of the schema would be 'c' there": 1}
