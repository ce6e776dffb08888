"""Whatever a row holds, it is a product or a dead letter with a reason. Drawn rows go through every stage without Ray:
plan, count, prepare, decode (answers are made up), finish.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipelines.catalog.cells import cell_text, field_text
from pipelines.catalog.parquet_rows import read_cells
from pipelines.catalog.readers import read_piece
from pipelines.catalog.staging import store_rows
from pipelines.errors import UsageError
from pipelines.job.decode_stage import ShardDecoder
from pipelines.job.finish_stage import finish_shard
from pipelines.job.preflight import PlannedJob, count_categories, plan_job
from pipelines.job.prepare_stage import prepare_shard
from pipelines.job.rounds import job_context
from pipelines.job.source_texts import Wanted, read_texts
from pipelines.store.columns import ERROR_CODES
from pipelines.store.ledger import Ledger
from tests.examples import examples
from tests.pipelines.catalog.drawn_rows import SEPARATOR, Line, arrow_types, broken_lines, drawn_column, whole_lines
from tests.pipelines.conftest import Workplace

CODES = {code for code, _, _ in ERROR_CODES}
ROWS = 8

Row = dict[str, Any]


class Errors(logging.Handler):
    """Program faults that a guard has caught."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


def plan(folder: Path, model: Path, **changes: Any) -> PlannedJob:
    """The job over the folder's catalog. Raises `UsageError`."""
    workplace = Workplace(folder, model)
    given = {"path": str(workplace.catalog), "id": "id", "fields": ["title", "bullets"], "list_separator": SEPARATOR}
    given |= changes
    return plan_job(workplace.config(input=given, decoding="made-up", shards={"target_tokens": 10**7, "ramp": []}))


def run(job: PlannedJob) -> tuple[list[Row], list[Row]]:
    """The products and dead letters of a job, after every check that holds for all rows."""
    errors = Errors()
    logging.getLogger("pipelines").addHandler(errors)
    try:
        store_rows(job.output, [file.staged for file in job.plan.files if file.staged is not None])
        counts = count_categories(job.plan, job.config.input, job.schemas)
        context = job_context(job, Ledger(job.output, "aaaa"))
        decoder = ShardDecoder(context)
        (shard,) = job.plan.shards
        prepared = prepare_shard(shard, context)
        _, tables, facts = finish_shard(decoder.decode(prepared), context)
    finally:
        logging.getLogger("pipelines").removeHandler(errors)
    assert errors.found == []
    products, dead = (pq.read_table(io.BytesIO(tables[name].data)).to_pylist() for name in ("products", "dead_letter"))
    assert len(products) + len(dead) == job.plan.num_rows == facts["counts"]["rows"]
    places = [row["source_row"] for row in [*products, *dead]]
    assert len(set(places)) == len(places)
    for row in dead:
        assert row["error_code"] in CODES
        assert row["error"]
        assert row["row_json"] is not None
    expected = Counter(null_category=counts.categories[""]) + counts.dead.rows
    expected["no_schema"] = sum(count for name, count in counts.categories.items() if name and name not in job.schemas)
    assert Counter(row["error_code"] for row in dead) == +expected
    # The report finds every product's text again.
    wanted = [Wanted(*(row[name] for name in Wanted._fields)) for row in products]
    texts, notes = read_texts(job.plan, job.plan.result_config["input"], wanted)
    assert (len(texts), notes) == (len(products), [])
    known = sum(rows for name, rows in counts.categories.items() if name in job.schemas)
    assert known >= len(products)
    return products, dead


@st.composite
def lines(draw: st.DrawFn) -> list[Line | bytes]:
    return draw(st.lists(st.one_of(whole_lines(), broken_lines()), min_size=1, max_size=ROWS))


def check_lines(drawn: list[Line | bytes], model: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "catalog").mkdir()
        # A first line that says which columns there are.
        first = Line(b'{"id": "first", "category": "Shoes", "title": "t", "bullets": ["light"]}', "t")
        every = [first, *drawn]
        data = [each.data if isinstance(each, Line) else each for each in every]
        (folder / "catalog" / "c.jsonl").write_bytes(b"\n".join(data) + b"\n")
        job = plan(folder, model)
        products, _ = run(job)
        alive = {row["source_row"] for row in products}
        (piece,) = job.plan.shards[0].pieces
        rows = {row.number: row for row in read_piece(job.plan.files[0].name, "jsonl", piece, None)}
        for number, each in enumerate(every):
            if isinstance(each, Line):
                assert (number in alive) == (each.title is not None), each
                if each.title is not None:
                    assert cell_text((rows[number].values or {})["title"], SEPARATOR) == each.title


def check_table(titles: list[str], broken: list[bytes], model: Path) -> None:
    """Rows of CSV, with broken ones between them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "catalog").mkdir()
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, quoting=csv.QUOTE_ALL)
        for number, title in enumerate(titles):
            writer.writerow([f"p{number}", "Shoes", title, "light"])
        data = b"id,category,title,bullets\n" + buffer.getvalue().encode()
        # Broken ones at the end: in the midst they could swallow others.
        data += b"".join(row + b"\n" for row in broken)
        (folder / "catalog" / "c.csv").write_bytes(data)
        job = plan(folder, model, encoding="utf-8", delimiter=",", quote='"')
        products, dead = run(job)
        assert [row["source_row"] for row in products] == list(range(len(titles)))
        assert len(dead) == job.plan.num_rows - len(titles)
        assert {row["error_code"] for row in dead} <= {"broken_line", "unreadable"}
        (piece,) = job.plan.shards[0].pieces
        found = {row.number: row.values for row in read_piece(*job.plan.files[0].rows, piece, ["title"])}
        assert [(found[number] or {})["title"] for number in range(len(titles))] == titles


def check_column(kind: pa.DataType, seed: int, mapped: str, model: Path) -> None:
    generator = np.random.default_rng(seed)
    try:
        cells = drawn_column(kind, ROWS, generator)
        others = drawn_column(kind, ROWS, generator)
        columns = {
            "id": pa.array([f"p{number}" for number in range(ROWS)]),
            "category": pa.array(["Shoes"] * ROWS),
            "title": pa.array(["t"] * ROWS),
            "bullets": pa.array([["light"]] * ROWS),
        } | {mapped: cells}
        table = pa.Table.from_arrays([*columns.values(), others, others], names=[*columns, "other", "other"])
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
    except (pa.ArrowException, OSError):
        assume(False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "catalog").mkdir()
        (folder / "catalog" / "c.parquet").write_bytes(buffer.getvalue())
        refused = None
        try:
            job = plan(folder, model)
        except UsageError as error:
            refused = str(error)
        if refused is not None:
            assert f"column {mapped!r}" in refused
            assert "has the type" in refused
            return
        products, dead = run(job)
        for row in dead:
            # Another reader of JSON, which knows no NaN, reads the row; of the doubled column both are there.
            text = json.loads(row["row_json"], parse_constant=pytest.fail)
            assert {"other", "other (2)"} <= set(text)
        if mapped == "title":
            alive = {row["source_row"] for row in products}
            check_texts(pq.ParquetFile(buffer).read(["title"]).column(0).combine_chunks(), alive)


def check_texts(cells: pa.Array, alive: set[int]) -> None:
    """Whether the texts of plain cells are what Arrow makes of them, and no text depends on the cells beside it."""
    alone = [field_text(read_cells(cells.slice(number, 1))[0], SEPARATOR) for number in range(len(cells))]
    assert [field_text(cell, SEPARATOR) for cell in read_cells(cells)] == alone
    kind = cells.type
    expected = next((make for test, make in _TESTS if test(kind)), None)
    if expected is None:
        return
    for number, cell in enumerate(read_cells(cells)):
        if number in alive and cells[number].is_valid:
            assert expected(cells, number, cell_text(cell, SEPARATOR)), (cells[number], cell)


def _as_arrow_says(cells: pa.Array, number: int, text: str) -> bool:
    return bool(cells.slice(number, 1).cast(pa.string())[0].as_py() == text)


def _same_float(cells: pa.Array, number: int, text: str) -> bool:
    value = cells.slice(number, 1).to_numpy()[0]
    return bool(np.isnan(value)) if text == "" else bool(type(value)(text) == value)


def _same_bytes(cells: pa.Array, number: int, text: str) -> bool:
    return bool(cells.slice(number, 1).cast(pa.large_binary())[0].as_py() == text.encode())


_TESTS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, int, str], bool]]] = [
    (pa.types.is_integer, _as_arrow_says),
    (pa.types.is_boolean, _as_arrow_says),
    (pa.types.is_date, _as_arrow_says),
    (pa.types.is_floating, _same_float),
    (pa.types.is_string, _same_bytes),
    (pa.types.is_large_string, _same_bytes),
    (pa.types.is_binary, _same_bytes),
    (pa.types.is_large_binary, _same_bytes),
]

_MAPPED = st.sampled_from(["title", "title", "title", "id", "category"])
_SEEDS = st.integers(0, 2**32 - 1)


@given(drawn=lines())
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_line_is_a_product_or_a_dead_letter(drawn: list[Line | bytes], tiny_model_dir: Path) -> None:
    check_lines(drawn, tiny_model_dir)


@given(kind=arrow_types, seed=_SEEDS, mapped=_MAPPED)
@settings(max_examples=examples(160), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_any_column_is_products_and_dead_letters(
    kind: pa.DataType, seed: int, mapped: str, tiny_model_dir: Path
) -> None:
    check_column(kind, seed, mapped, tiny_model_dir)


_TITLES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map("t".__add__), min_size=1, max_size=ROWS
)
_BROKEN = st.lists(st.sampled_from([b"a,b", b'"open', b'"a"b,c,d,e', b"1,2,3,4,5"]), max_size=4)


@given(titles=_TITLES, broken=_BROKEN)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
def test_any_row_of_a_table_is_a_product_or_a_dead_letter(
    titles: list[str], broken: list[bytes], tiny_model_dir: Path
) -> None:
    check_table(titles, broken, tiny_model_dir)
