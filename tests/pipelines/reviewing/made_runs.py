"""A small run to review: its answers, texts and vocabulary are known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hpd_core import Attribute, CategorySchema
from pipelines.normalising.normalise import Normaliser
from pipelines.store.folders import Folder
from pipelines.store.no_run import store_schemas
from pipelines.store.tables import to_table
from pipelines.store.verdicts import AnswerKey
from tests.pipelines.reporting.made_runs import Answer, Product, write_run

COFFEE = CategorySchema(
    category="Coffee",
    attributes=(
        Attribute(name="Brand", description="who made it"),
        Attribute.model_validate(
            {
                "name": "Roast",
                "type": "enum",
                "values": [{"label": "dark", "synonyms": ["french"]}, "medium", "light", "very light"],
            }
        ),
        Attribute(name="Weight", type="number", unit="g"),
        Attribute(name="Notes", multiple=True),
    ),
)
SCHEMAS = {"Coffee": COFFEE}


def coffee(number: int, probability: float = 0.9, **answers: Answer) -> Product:
    """A product whose Roast the model is less sure of, the higher the number."""
    found = {
        "Brand": Answer("Velor", probability),
        "Roast": Answer("medium", max(0.01, probability - 0.05 * number)),
        "Weight": Answer("500", probability),
        "Notes": Answer(["nougat", "almond"], probability),
    }
    text = f"Velor coffee {number}, medium roast, 500 g, notes of nougat and almond"
    return Product(f"c{number}", {"title": text, "description": "Roasted slowly."}, {**found, **answers})


def reviewable_run(
    folder: Path,
    shards: Sequence[Sequence[Product]] | None = None,
    schemas: Mapping[str, CategorySchema] = SCHEMAS,
    **cells: Any,
) -> Path:
    """A finished run as a job leaves it, normalised. `cells` are put into every row of its attribute table."""
    run = write_run(folder, shards or [[coffee(0), coffee(1)], [coffee(2)]])
    (run / "_schemas.json").unlink()
    store_schemas(Folder(str(run)), schemas)
    attributes = {(schema.category, each.name): each for schema in schemas.values() for each in schema.attributes}
    for path in sorted((run / "attributes").glob("*.parquet")):
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            row |= {"source": "model", **cells}
            if row["status"] == "value":
                attribute = attributes[row["category"], row["attribute"]]
                row |= Normaliser(attribute).columns(f"{row['value_raw']} g", None) if attribute.unit else {}
                row |= {} if attribute.unit else Normaliser(attribute).columns(row["value_raw"], None)
        pq.write_table(to_table("attributes", rows), path)
    for path in (run / "_shards").glob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "tables": _tables(run, path.stem)}))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({"run_id": "run-1", "finished_at": "2026-11-20", **manifest}))
    return run


def _tables(run: Path, shard: str) -> dict[str, Any]:
    names = {name: f"{name}/part-{shard}.parquet" for name in ("attributes", "products", "dead_letter")}
    return {
        name: {
            "public": public,
            "num_rows": pq.read_metadata(run / public).num_rows,
            "sha256": hashlib.sha256((run / public).read_bytes()).hexdigest(),
        }
        for name, public in names.items()
    }


def key_of(run: Path, row: int, attribute: str) -> AnswerKey:
    """An answer of the run's only file."""
    plan = json.loads((run / "_plan.json").read_text())
    name = plan["files"][0]["name"] if isinstance(plan["files"][0], dict) else plan["files"][0][0]
    return AnswerKey(name, row, attribute)
