"""Large made-up runs, written as tables at once: for the memory of what reads them.

    python -m tests.pipelines.comparing.large_runs FOLDER 1000000 [MEMORY_LIMIT]

writes FOLDER/a and FOLDER/b, compares them and prints time, peak memory of the comparison and what it found.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.catalog.sharding import RowRange, Shard
from pipelines.job.run_plan import Plan, PlannedFile
from pipelines.store.folders import Folder
from pipelines.store.ledger import PLAN_NAME
from pipelines.store.tables import ATTRIBUTES, DEAD_LETTER, PRODUCTS, TABLES, to_table
from tests.pipelines.comparing.made_runs import START, shard_metrics

NUM_ATTRIBUTES = 10
_SHARD = 50_000
_ABSENT_EVERY, _OTHER_EVERY = 4, 7  # answers


def write_large_run(folder: Path, num_products: int, *, differs: bool) -> str:
    """A run of products with ten attributes: every fourth answer is absent, every seventh another if it `differs`."""
    output = Folder(str(folder))
    cuts = [
        (index, start, min(start + _SHARD, num_products)) for index, start in enumerate(range(0, num_products, _SHARD))
    ]
    plan = Plan(
        run_id=folder.name,
        created_at=START.isoformat(),
        result_config={"model": folder.name},
        config_hash="c",
        schema_hash="s",
        limit=None,
        files=[PlannedFile("catalog.parquet", "parquet", 1, "f1", num_products)],
        shards=[
            Shard(index, (RowRange(0, start, stop, stop - start),), stop - start, 1) for index, start, stop in cuts
        ],
    )
    output.write(PLAN_NAME, plan.to_json())
    output.write("_schemas.json", b"{}")
    for table in TABLES:
        (folder / table).mkdir()
    for index, start, stop in cuts:
        _write_shard(folder, index, np.arange(start, stop), differs)
    output.write("manifest.json", b'{"finished_at": ""}')
    return str(folder)


def expected(num_products: int) -> dict[str, int]:
    """Answers by what becomes of them from the first to the second."""
    answers = np.arange(num_products * NUM_ATTRIBUTES)
    absent, other = answers % _ABSENT_EVERY == 0, answers % _OTHER_EVERY == 0
    return {
        "same_value": int((~absent & ~other).sum()),
        "both_absent": int((absent & ~other).sum()),
        "other_value": int((~absent & other).sum()),
        "absent_to_value": int((absent & other).sum()),
    }


def _write_shard(folder: Path, index: int, rows: np.ndarray, differs: bool) -> None:
    def place(rows: np.ndarray) -> dict[str, pa.Array]:
        number = len(rows)
        texts = dict.fromkeys(("run_id", "model_id", "schema_hash", "prompt_hash", "layout"), folder.name)
        return {name: pa.repeat(pa.scalar(text), number) for name, text in texts.items()} | {
            "source_file": pa.repeat(pa.scalar("catalog.parquet"), number),
            "source_row": pa.array(rows),
            "product_id": pa.array([f"product-{row:09d}" for row in rows]),
            "category": pa.array([f"category {row % 40}" for row in rows]),
            "input_hash": pa.array([f"{row:016x}" for row in rows]),
        }

    def table(schema: pa.Schema, columns: dict[str, pa.Array], number: int) -> pa.Table:
        return pa.table(
            [columns.get(field.name, pa.nulls(number, field.type)).cast(field.type) for field in schema], schema=schema
        )

    number = len(rows)
    zeros = pa.array(np.zeros(number, np.int32))
    counts = {f"num_{status}": zeros for status in ("value", "absent", "truncated", "invalid")}
    empty = pa.array([[]] * number, PRODUCTS.field("values").type)
    products = table(PRODUCTS, place(rows) | counts | {"values": empty}, number)

    answers = np.repeat(rows, NUM_ATTRIBUTES) * NUM_ATTRIBUTES + np.tile(np.arange(NUM_ATTRIBUTES), number)
    other = (answers % _OTHER_EVERY == 0) & differs
    absent = (answers % _ABSENT_EVERY == 0) & ~other
    values = pa.array(np.char.add(np.where(other, "other value ", "value "), (answers % 5000).astype(str)), mask=absent)
    of_answers = {
        **place(np.repeat(rows, NUM_ATTRIBUTES)),
        "attribute": pa.array([f"attribute {each}" for each in range(NUM_ATTRIBUTES)] * number),
        "value_index": pa.array(np.zeros(len(answers), np.int32)),
        "value_raw": values,
        "status": pa.array(np.where(absent, "absent", "value")),
        "num_tokens": pa.array(np.full(len(answers), 3, np.int32)),
        "num_dropped": pa.array(np.zeros(len(answers), np.int32)),
        "logprob_mean": pa.array(np.full(len(answers), -0.1)),
    }
    tables = {
        "products": products,
        "attributes": table(ATTRIBUTES, of_answers, len(answers)),
        "dead_letter": DEAD_LETTER.empty_table(),
        "metrics": to_table("metrics", [shard_metrics(folder.name, index, number, 0, len(answers), None)]),
    }
    for name, content in tables.items():
        pq.write_table(content, folder / name / f"part-{index:06d}.parquet", compression="zstd")
    counted = {"rows": number, "products": number, "dead_letters": 0, "statuses": {}, "reasons": {}}
    manifest = {"shard": index, "tables": {}, "counts": counted, "metrics": {}, "finished_at": START.isoformat()}
    Folder(str(folder)).write(f"_shards/{index:06d}.json", json.dumps(manifest).encode())


def compare_apart(a: str, b: str, memory_limit: str | None = None) -> tuple[dict[str, int], float]:
    """The kinds of change between two runs, and the peak memory, in MB, of a process of its own that compares them."""
    code = f"""
import json, sys
from pipelines.comparing import joined_runs
joined_runs.MEMORY_LIMIT = {memory_limit!r} or joined_runs.MEMORY_LIMIT
from pipelines.comparing.comparison import compare_runs
from pipelines.comparing.answer_changes import KINDS
found = compare_runs(*sys.argv[1:]).same_text.kinds

# Of this program alone: what getrusage says begins with the memory of the process that started it.
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
print(json.dumps([found, peak]))
"""
    done = subprocess.run([sys.executable, "-c", code, a, b], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    kinds, peak = json.loads(done.stdout.splitlines()[-1])
    return {kind: number for kind, number in kinds.items() if number}, peak / 1024


if __name__ == "__main__":
    target, count = Path(sys.argv[1]), int(sys.argv[2])
    started = time.monotonic()
    runs = [write_large_run(target / name, count, differs=name == "b") for name in "ab"]
    written = time.monotonic()
    found, peak_megabytes = compare_apart(runs[0], runs[1], sys.argv[3] if len(sys.argv) > 3 else None)
    assert found == expected(count), found
    print(
        f"written in {written - started:.0f} s, compared in {time.monotonic() - written:.0f} s, "
        f"{peak_megabytes:,.0f} MB at the peak"
    )
