"""What a source is, told by its content; what is none, or several, is refused with the way out."""

from __future__ import annotations

import gzip
from pathlib import Path

from pipelines.schemas.importing.kinds import SchemaKind
from tests.pipelines.schemas.imports import done, refused, write
from tests.tables import table

SAMPLES = {
    SchemaKind.SHOPIFY: ("x.yml", "- {id: a, name: Bags, children: [], attributes: [color]}\n"),
    SchemaKind.GOOGLE: ("x.txt", "# Google_Product_Taxonomy_Version: 1\n1 - Bags\n"),
    SchemaKind.AKENEO: ("x.csv", "type;code\npim_catalog_text;color\n"),
    SchemaKind.MAGENTO: ("x.csv", "attribute_code,frontend_input\ncolor,text\n"),
    SchemaKind.JSON_SCHEMA: ("x.json", '{"properties": {"color": {"type": "string"}}}'),
    SchemaKind.GOLD: ("x.jsonl", '{"product_id": "1", "category": "Bags", "values": {"color": ["red"]}}\n'),
}


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("\ufefftype;code\r\npim_catalog_text;color\r\n".encode())
    assert done(tmp_path, path).names("products") == ["Color"]
    text = tmp_path / "x.txt"
    text.write_bytes(b"\xef\xbb\xbf# Google_Product_Taxonomy_Version: 1\r\n1 - Bags\r\n")
    assert list(done(tmp_path, text).schemas) == ["Bags"]


def test_several_kinds_are_refused_and_others_told(tmp_path: Path) -> None:
    google = write(tmp_path, "g.txt", SAMPLES[SchemaKind.GOOGLE][1])
    model = write(tmp_path, "m.json", SAMPLES[SchemaKind.JSON_SCHEMA][1])
    assert "these are of several kinds (google: " in refused(tmp_path, google, model)
    assert "not read, of another kind: " in done(tmp_path, google, model, "--from", "google").printed


@table(
    ("name", "text", "message"),
    [
        ("x.txt", "hello\n", "none of shopify, google, akeneo"),
        ("x.json", "{", "x.json, line 1: not JSON"),
        ("x.json", '{"a": 1}', "name the kind with --from"),
        ("x.yml", "a: [\n", "x.yml, line 2: not YAML"),
        ("x.csv", "", "none of shopify"),
        ("x.csv", "a;b\n1;2\n", "none of shopify"),
        ("x.json", "[" * 100_000, "not JSON"),
    ],
)
def test_what_is_of_no_kind(tmp_path: Path, name: str, text: str, message: str) -> None:
    assert message in refused(tmp_path, write(tmp_path, name, text))


def test_what_is_not_there(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path, tmp_path / "nowhere.json")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no file in it ends with" in refused(tmp_path, empty)
    latin = tmp_path / "x.csv"
    latin.write_bytes("type;code\npim_catalog_text;größe\n".encode("latin-1"))
    assert "is not UTF-8 text" in refused(tmp_path, latin)
    packed = tmp_path / "gold.jsonl.gz"
    packed.write_bytes(gzip.compress(b"{}"))
    assert "gold.jsonl.gz is packed: unpack it first (gunzip)" in refused(tmp_path, packed)
