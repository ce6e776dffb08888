"""What a source is, told by its content; what is none, or several, is refused with the way out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from pipelines.schemas.importing.kinds import Kind, is_gold
from tests.pipelines.schemas.imports import call, done, refused, write
from tests.tables import table

SAMPLES = {
    Kind.SHOPIFY: ("x.yml", "- {id: a, name: Bags, children: [], attributes: [color]}\n"),
    Kind.GOOGLE: ("x.txt", "# Google_Product_Taxonomy_Version: 1\n1 - Bags\n"),
    Kind.AKENEO: ("x.csv", "type;code\npim_catalog_text;color\n"),
    Kind.MAGENTO: ("x.csv", "attribute_code,frontend_input\ncolor,text\n"),
    Kind.JSON_SCHEMA: ("x.json", '{"properties": {"color": {"type": "string"}}}'),
    Kind.GOLD: ("x.jsonl", '{"product_id": "1", "category": "Bags", "values": {"color": ["red"]}}\n'),
}


@table("kind", SAMPLES)
def test_the_content_tells_the_kind(tmp_path: Path, kind: Kind) -> None:
    path = write(tmp_path, *SAMPLES[kind])
    told, named = done(tmp_path, path), done(tmp_path, path, "--from", kind)
    assert told.schemas == named.schemas
    assert any(
        "color" in name.casefold() for schema in told.schemas.values() for name in [a.name for a in schema.attributes]
    )
    for other in SAMPLES.keys() - {kind}:
        assert refused(tmp_path, path, "--from", other)


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("\ufefftype;code\r\npim_catalog_text;color\r\n".encode())
    assert done(tmp_path, path).names("products") == ["Color"]
    text = tmp_path / "x.txt"
    text.write_bytes(b"\xef\xbb\xbf# Google_Product_Taxonomy_Version: 1\r\n1 - Bags\r\n")
    assert list(done(tmp_path, text).schemas) == ["Bags"]


def test_several_kinds_are_refused_and_others_told(tmp_path: Path) -> None:
    google = write(tmp_path, "g.txt", SAMPLES[Kind.GOOGLE][1])
    model = write(tmp_path, "m.json", SAMPLES[Kind.JSON_SCHEMA][1])
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


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = write(tmp_path, *SAMPLES[Kind.GOOGLE])
    out = write(tmp_path, "mine.yaml", "mine")
    assert "--force writes over it" in call(path, "--out", out).stderr
    assert out.read_text() == "mine"


def test_gold_is_told_from_other_lines(tmp_path: Path) -> None:
    gold = write(tmp_path, "gold.json", SAMPLES[Kind.GOLD][1])
    assert is_gold(str(gold))
    assert is_gold(str(tmp_path / "nowhere.jsonl"))
    assert is_gold(str(write(tmp_path, "broken.jsonl", "{")))
    assert not is_gold(str(write(tmp_path, "o.jsonl", '{"code": "red", "attribute": "color"}')))
    assert not is_gold(str(tmp_path))


def test_a_label_of_an_attribute_without_a_name_is_refused_by_its_line(tmp_path: Path) -> None:
    line = {"product_id": "1", "category": "C", "values": {"": ["x"], "Brand": ["y"]}}
    gold = write(tmp_path, "gold.jsonl", f"{json.dumps(line)}\n")
    for arguments in ((), ("--plain",)):
        assert "gold.jsonl, line 1: 'values' > '': the name '' is blank" in refused(tmp_path, gold, *arguments)
