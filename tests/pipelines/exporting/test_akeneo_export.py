"""Akeneo's product CSV: codes, units beside numbers; new, or filled in."""

from __future__ import annotations

from pathlib import Path

from hpd_core import Attribute, CategorySchema
from tests.pipelines.comparing.made_runs import Row
from tests.pipelines.exporting.made_runs import bag, exported, write_normalised_run, write_shop_run


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


def test_the_family_is_the_category_of_the_schemas(tmp_path: Path) -> None:
    boots = CategorySchema(category="Boots", id="boots_2", attributes=(Attribute(name="Brand"),))
    uri = write_normalised_run(tmp_path / "run", [Row("b", {"Brand": "Acme"}, "Acme", "Boots")], {"Boots": boots})
    exported(uri, "--to", "akeneo", "--out", str(tmp_path / "new.csv"))
    assert (tmp_path / "new.csv").read_text(encoding="utf-8").split() == ["sku;family;brand", "b;boots_2;Acme"]


def test_codes_and_units_that_akeneo_does_not_have(tmp_path: Path) -> None:
    schema = CategorySchema(
        category="Bags",
        attributes=(
            Attribute(name="Family"),
            Attribute(name="日本"),
            Attribute(name="Stil", id="style_code", type="enum", values=("a", "b")),
            Attribute(name="Run", type="number", unit="furlong"),
        ),
    )
    row = Row("b", {"Family": "x", "日本": "y", "Stil": "a", "Run": "3"}, "3 furlong x y a", "Bags")
    uri = write_normalised_run(tmp_path / "run", [row], {"Bags": schema})
    result = exported(uri, "--to", "akeneo", "--out", str(tmp_path / "new.csv"))
    assert (tmp_path / "new.csv").read_text(encoding="utf-8").splitlines()[0] == "sku;style_code;run;run-unit"
    assert result["left_out"] == {
        "no column of the target for it; --columns names one": 2,
        "no option code in the schema": 1,
        "in furlong, which has no code there": 1,
    }


def test_an_export_of_akeneos_is_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "products.csv"
    path.write_text("sku;family;brand;width;width-unit\nb;bags;;3;INCH\nc;bags;Kona;;\n", encoding="utf-8")
    uri = write_shop_run(tmp_path / "run", path, "csv", "sku", [bag("b", row=0), bag("c", row=1)])
    exported(uri, "--to", "akeneo", "--out", str(tmp_path / "new.csv"))
    assert (tmp_path / "new.csv").read_text(encoding="utf-8") == (
        "sku;family;brand;width;width-unit;color;lined\nb;bags;Acme;3;INCH;1,2;1\nc;bags;Kona;35.56;CENTIMETER;1,2;1\n"
    )
