"""What a source is, told by its content; what is none, or several, is refused with the way out."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.config.imports import done, refused, write
from tests.tables import table


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("\ufefftype;code\r\npim_catalog_text;color\r\n".encode())
    assert done(tmp_path, path).names("products") == ["Color"]
    text = tmp_path / "x.txt"
    text.write_bytes(b"\xef\xbb\xbf# Google_Product_Taxonomy_Version: 1\r\n1 - Bags\r\n")
    assert list(done(tmp_path, text).schemas) == ["Bags"]


@table(
    ("name", "text", "message"),
    [
        ("x.txt", "hello\n", "none of shopify, akeneo, google"),
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


OBJECT = '{"type": "object", "properties": {"a": {"type": "string"}}}'
LABELLED = '{"category": "A", "product_id": "1", "values": {"B": ["c"]}}'


@table(
    ("name", "text", "options", "message"),
    [
        ("x.json", OBJECT, ["--language", "de"], "is for akeneo"),
        ("x.json", OBJECT, ["--plain"], "for gold files"),
        ("x.jsonl", LABELLED, ["--name", "n"], "not for gold files"),
        ("x.json", OBJECT, ["--from", "shop"], "there are shopify, akeneo"),
    ],
)
def test_an_option_that_the_kind_does_not_use_is_refused(
    tmp_path: Path, name: str, text: str, options: list[str], message: str
) -> None:
    assert message in refused(tmp_path, write(tmp_path, name, text), *options)
