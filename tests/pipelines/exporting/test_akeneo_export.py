"""Akeneo's product CSV: codes, units beside numbers; new, or filled in."""

from __future__ import annotations

from pathlib import Path

from hpd_core import Attribute, CategorySchema
from tests.pipelines.evaluating.made_runs import Row
from tests.pipelines.exporting.made_runs import ask, bag, exported, write_normalised_run, write_shop_run
from tests.tables import table


def test_a_new_file(tmp_path: Path) -> None:
    uri = write_normalised_run(tmp_path / "run", [bag("b"), Row("t", {"Notes": ["oak", "malt"]}, "", "Teas")])
    result = exported(uri, "--to", "akeneo", "--out", str(tmp_path / "new.csv"), "--identifier", "uuid")
    assert (tmp_path / "new.csv").read_text(encoding="utf-8").splitlines() == [
        "uuid;brand;color;width;width-unit;lined;notes",
        "b;Acme;1,2;35.56;CENTIMETER;1;",
        "t;;;;;;",
    ]
    assert result["left_out"] == {"2 values, 1 at most": 1}
    assert "Empty cells empty the attribute" in result["notes"][0]


@table("kind", ["akeneo", "google"])
def test_an_id_that_stands_twice_is_told(kind: str, tmp_path: Path) -> None:
    schemas = {"A": CategorySchema(category="A", attributes=(Attribute(name="Brand"),))}
    rows = [Row(id_, {"Brand": "Acme"}, "Acme", "A") for id_ in ("a", "b", "a")]
    uri = write_normalised_run(tmp_path / "run", rows, schemas)
    notes = exported(uri, "--to", kind, "--out", str(tmp_path / "out"))["notes"]
    assert f"1 row has an id that an earlier one has, too: {kind} keeps one product of an id" in notes[-1]


def test_an_export_of_akeneos_is_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "products.csv"
    path.write_text("sku;family;brand;width;width-unit\nb;bags;;3;INCH\nc;bags;Kona;;\n", encoding="utf-8")
    uri = write_shop_run(tmp_path / "run", path, "csv", "sku", [bag("b", row=0), bag("c", row=1)])
    exported(uri, "--to", "akeneo", "--out", str(tmp_path / "new.csv"))
    assert (tmp_path / "new.csv").read_text(encoding="utf-8") == (
        "sku;family;brand;width;width-unit;color;lined\nb;bags;Acme;3;INCH;1,2;1\nc;bags;Kona;35.56;CENTIMETER;1,2;1\n"
    )


def _sized(category: str, code: str) -> CategorySchema:
    size = {"label": "M", "id": f"{code}_m"}
    attribute = {"name": "Size", "id": code, "type": "enum", "values": [size]}
    return CategorySchema.model_validate({"category": category, "attributes": [attribute]})


def test_attributes_of_one_name_and_two_ids_are_two_columns(tmp_path: Path) -> None:
    schemas = {"Shoes": _sized("Shoes", "shoe_size"), "Shirts": _sized("Shirts", "shirt_size")}
    rows = [Row("a", {"Size": "M"}, "M", "Shoes"), Row("b", {"Size": "M"}, "M", "Shirts")]
    uri = write_normalised_run(tmp_path / "run", rows, schemas)
    exported(uri, "--to", "akeneo", "--out", str(tmp_path / "new.csv"))
    assert (tmp_path / "new.csv").read_text(encoding="utf-8").split() == [
        "sku;shoe_size;shirt_size",
        "a;shoe_size_m;",
        "b;;shirt_size_m",
    ]


def test_the_column_of_a_locale_is_named(tmp_path: Path) -> None:
    text = "sku;family;brand-de_DE;brand-en_US;width-ecommerce;width-ecommerce-unit\nb;bags;Alt;;;\n"
    path, out = tmp_path / "products.csv", tmp_path / "new.csv"
    path.write_text(text, encoding="utf-8")
    run = write_shop_run(tmp_path / "run", path, "csv", "sku", [bag("b", row=0)])
    code, _, error = ask(run, "--to", "akeneo", "--out", str(out))
    message = "the attribute 'Brand' has the columns brand-de_DE, brand-en_US in the original"
    assert (code, message in error) == (2, True), error
    columns = ("Brand=brand-en_US", "Width=width-ecommerce", "Color=", "Lined=")
    exported(run, "--to", "akeneo", "--out", str(out), *(part for each in columns for part in ("--columns", each)))
    assert out.read_text(encoding="utf-8") == text.replace("Alt;;;", "Alt;Acme;35.56;CENTIMETER")
