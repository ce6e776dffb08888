"""The numbers that the sample's texts print, as they stand there, against what its gold says they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from hpd_core import Record
from hpd_core.text.grounding import Grounder
from pipelines.config.schema_file import load_schemas
from pipelines.job.table_rows import evidence_row
from pipelines.normalising.normalise import normalisers

SAMPLE = Path("sample")


def test_what_texts_print_becomes_the_gold() -> None:
    """Apart from any model: of a right raw value, a wrong number is never made, and most become what they are."""
    schemas = load_schemas(str(SAMPLE / "schemas.yaml"))
    gold = {line["product_id"]: line for line in map(json.loads, (SAMPLE / "gold.jsonl").read_text().splitlines())}
    outcomes: Counter[str] = Counter()
    for row in pq.read_table(SAMPLE / "products.parquet").to_pylist():
        entry, schema = gold[row["product_id"]], schemas[row["category"]]
        fields = {"title": row["title"], "bullets": "\n".join(row["bullets"]), "description": row["description"] or ""}
        record = Record(row["product_id"], row["category"], fields)
        grounder = Grounder(fields)
        for attribute in schema.attributes:
            norm = entry["norm"].get(attribute.name)
            if attribute.type != "number" or norm is None:
                continue
            forms = entry["values"][attribute.name]
            for raw in norm.get("printed", []) or forms[:1]:
                places = [evidence_row(place, place, record) for place in grounder.find(attribute, raw)]
                found = normalisers(schema)[attribute.name].normalise(raw, places)
                if found.status != "ok" or found.num is None:
                    outcomes[found.status] += 1
                    continue
                rights = [norm["num"], *map(float, forms)]
                is_right = any(abs(found.num - right) <= 0.01 * abs(right) for right in rights)
                assert is_right, (row["product_id"], attribute, raw, places, found, norm)
                assert attribute.unit is None or found.unit == norm["unit"]
                outcomes["right"] += 1
    assert outcomes["right"] / outcomes.total() > 0.8, outcomes
