"""Runs whose answers are known, with the normalised values that a job would have given them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from python_calamine import CalamineWorkbook
from typer.testing import CliRunner

from hpd_core import Attribute, CategorySchema
from pipelines import export
from pipelines.catalog.staging import measure
from pipelines.normalising.normalise import Normaliser
from pipelines.store.folders import Folder, open_filesystem
from pipelines.store.no_run import store_schemas
from pipelines.store.tables import to_table
from tests.pipelines.evaluating.made_runs import Row, write_run

BAGS = CategorySchema(
    category="Bags",
    attributes=(
        Attribute(name="Brand"),
        Attribute.model_validate(
            {
                "name": "Color",
                "id": "gid://shopify/TaxonomyAttribute/1",
                "type": "enum",
                "multiple": True,
                "values": [{"label": "Black", "id": "1"}, {"label": "Rose gold", "id": "2", "synonyms": ["rose"]}],
            }
        ),
        Attribute(name="Width", type="number", unit="cm"),
        Attribute(name="Lined", type="boolean"),
    ),
)
TEAS = CategorySchema(category="Teas", attributes=(Attribute(name="Brand"), Attribute(name="Notes", multiple=True)))
SCHEMAS = {"Bags": BAGS, "Teas": TEAS}

BAG = {"Brand": "Acme", "Color": ["Black", "rose"], "Width": "14", "Lined": "true"}
BAG_TEXT = "Acme bag, Black and rose, 14 inches wide, lined"


def bag(id_: str = "b", row: int | None = None, **changes: Any) -> Row:
    return Row(id_, {**BAG, **changes}, BAG_TEXT, "Bags", row)


def write_normalised_run(
    folder: Path, rows: Sequence[Row], schemas: Mapping[str, CategorySchema] = SCHEMAS, **options: Any
) -> str:
    """As `write_run`, then normalised."""
    asked = {category: list(schema.attributes) for category, schema in schemas.items()}
    uri = write_run(folder, rows, schemas=asked, **options)
    (folder / "_schemas.json").unlink()
    store_schemas(Folder(uri), schemas)
    attributes = {(schema.category, each.name): each for schema in schemas.values() for each in schema.attributes}
    for path in sorted((folder / "attributes").glob("*.parquet")):
        found = pq.read_table(path).to_pylist()
        for row in found:
            if row["status"] == "value":
                attribute = attributes[row["category"], row["attribute"]]
                evidence = [place | _around(place, rows, row["source_row"]) for place in row["evidence"] or ()]
                row |= Normaliser(attribute).columns(row["value_raw"], evidence)
                row["evidence"] = evidence
        pq.write_table(to_table("attributes", found), path)
    return uri


def _around(place: Mapping[str, Any], rows: Sequence[Row], number: int) -> dict[str, str]:
    text = next((row.text for index, row in enumerate(rows) if (index if row.row is None else row.row) == number), "")
    return {"before": text[: place["start"]][-32:], "after": text[place["end"] :][:32]}


def ask(*arguments: str) -> tuple[int, str, str]:
    """The command: its exit code, what it prints, and its error."""
    result = CliRunner().invoke(export.app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def exported(*arguments: str) -> dict[str, Any]:
    """What the command says as JSON."""
    code, out, error = ask(*arguments, "--json")
    assert code == 0, error
    result: dict[str, Any] = json.loads(out)
    return result


def sheet(path: Path) -> list[list[Any]]:
    """The rows of a workbook."""
    return CalamineWorkbook.from_path(path).get_sheet_by_index(0).to_python()


def read_wide(file: str) -> list[dict[str, Any]]:
    """The rows of any kind of wide table."""
    match Path(file).suffix:
        case ".parquet":
            return pq.read_table(file).to_pylist()  # type: ignore[no-any-return]
        case ".jsonl":
            return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
        case ".xlsx":
            head, *rows = sheet(Path(file))
            return [dict(zip(head, row, strict=True)) for row in rows]
    with open(file, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _with_taxonomy_ids(schema: CategorySchema) -> CategorySchema:
    text = schema.model_dump_json(exclude_none=True)
    return CategorySchema.model_validate_json(re.sub(r'"id":"(\d+)"', r'"id":"gid://shopify/TaxonomyValue/\1"', text))


def write_shop_run(
    folder: Path, file: Path, format: str, id_column: str | None, rows: Sequence[Row], **options: Any
) -> str:
    """A run that has read `file`; every row names its number there."""
    if format == "shopify" and "schemas" not in options:
        options["schemas"] = {name: _with_taxonomy_ids(schema) for name, schema in SCHEMAS.items()}
    settings = {"path": [str(file)], "id": id_column, "fields": {"title": "title"}}
    config = {"model": "m", "input": settings}
    uri = write_normalised_run(folder, rows, files={str(file): "f"}, config=config, **options)
    plan = json.loads((folder / "_plan.json").read_text())
    size, fingerprint = measure(*open_filesystem(str(file)))
    plan["files"][0] |= {"format": format, "size": size, "fingerprint": fingerprint}
    (folder / "_plan.json").write_text(json.dumps(plan))
    return uri
