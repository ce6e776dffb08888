"""Runs over files that are read from their beginning on only: the rows of the same catalog as Parquet, and a resume."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import RunError, UsageError
from pipelines.job.source_texts import Wanted, read_texts
from tests.pipelines.conftest import Workplace, product, products, read_table

MADE_UP: dict[str, Any] = {"decoding": "made-up", "max_dead_letter_share": 1.0}
pytestmark = pytest.mark.usefixtures("own_cache")


def write_csv(path: Path, rows: list[dict[str, Any]], broken: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"bullets": "\n".join(row["bullets"])} for row in rows)
        file.write(broken)
    return path


def by_row(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in ("source_row", *names)) for row in rows)


def test_csv_is_extracted_as_parquet_is(workplace: Workplace, own_cache: Path) -> None:
    rows = [*products(40), product(40, category="Hats")]
    path = write_csv(workplace.catalog / "c.csv", rows, broken='p41,Shoes,"never closed\n')
    out = workplace.folder / "out"
    outcome = workplace.run(**MADE_UP)
    assert (outcome.totals.rows, outcome.totals.products, outcome.totals.dead_letters) == (42, 40, 2)
    assert not (out / "_input").exists()
    found, dead = read_table(out, "products"), read_table(out, "dead_letter")
    assert {row["source_file"] for row in found + dead} == {str(path)}
    assert by_row(dead, "error_code", "stage") == [(40, "no_schema", "prepare"), (41, "broken_line", "prepare")]
    assert next(row["row_json"] for row in dead if row["source_row"] == 41) == 'p41,Shoes,"never closed'
    # The report finds the texts, also where the rows are kept no more; not those of another file.
    wanted = [Wanted(*(row[name] for name in Wanted._fields)) for row in found]
    shutil.rmtree(own_cache)
    settings = outcome.plan.result_config["input"]
    assert len(read_texts(outcome.plan, settings, wanted)[0]) == 40
    path.write_text(path.read_text() + "p42,Shoes,more,x\n")
    assert len(read_texts(outcome.plan, settings, wanted)[0]) == 40, "the rows are kept as the run has read them"
    shutil.rmtree(own_cache)
    texts, (note,) = read_texts(outcome.plan, settings, wanted)
    assert (texts, "has changed since the run" in note) == ({}, True)

    path.unlink()
    workplace.write_parquet("c.parquet", [row | {"bullets": "\n".join(row["bullets"])} for row in rows])
    workplace.run(output=str(workplace.folder / "plain"), **MADE_UP)
    plain = read_table(workplace.folder / "plain", "products")
    assert by_row(found, "product_id", "values", "input_hash") == by_row(plain, "product_id", "values", "input_hash")


def test_a_run_goes_on_without_what_was_kept_and_not_with_another_file(
    workplace: Workplace, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(workplace.catalog / "c.csv", products(20))
    out = workplace.folder / "out"

    def stops(*_: object) -> None:
        raise RunError("stopped")

    with monkeypatch.context() as patched:
        patched.setattr("pipelines.job.job_run.decode_pending", stops)
        with pytest.raises(RunError, match="stopped"):
            workplace.run(**MADE_UP)
    (kept,) = (out / "_input").iterdir()
    assert [each.name for each in own_cache.iterdir()] == [kept.name]
    # Another machine, or one that has tidied up.
    shutil.rmtree(own_cache)
    kept.unlink()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"p3", b"p33", 1))
    with pytest.raises(UsageError, match=r"the input has changed since: \S+c\.csv has changed"):
        workplace.run(**MADE_UP)
    path.write_bytes(data)
    source = {"path": str(workplace.catalog), "id": "id", "fields": ["title", "bullets"], "encoding": "cp1252"}
    with pytest.raises(UsageError, match=r"another configuration: \S*encoding: not set -> 'cp1252'"):
        workplace.run(input=source, **MADE_UP)
    assert workplace.run(**MADE_UP).totals.products == 20
    assert not (out / "_input").exists()
