"""Catalogs clustered by category: the same answers, from shards of few categories."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import ActorUnschedulableError

from hpd_core import Record
from pipelines.catalog.sharding import RowRange
from pipelines.costing.earlier_run import read_earlier
from pipelines.errors import BudgetError, RunError
from pipelines.job.clustering import shuffle
from pipelines.job.clustering.clustered_rows import DealtRow, encode, from_values, segments, source_piece, to_table
from pipelines.job.clustering.clusters import Clusters
from pipelines.job.clustering.shuffle import Placement, identity_sum, rows_per_partition
from pipelines.job.context import DeadRow, PreparedRecord
from pipelines.job.run_status import read_status
from pipelines.store.folders import Folder
from tests.pipelines.conftest import Workplace, product, read_table
from tests.pipelines.job import faulty

CATEGORIES = st.dictionaries(st.text(max_size=3), st.integers(0, 400), min_size=1, max_size=8)


@given(CATEGORIES, st.integers(1, 500))
def test_every_row_has_a_place_and_no_partition_is_much_too_large(counts: dict[str, int], per_partition: int) -> None:
    placement = Placement.of(counts, per_partition)
    rows = [(category, row) for category in sorted(counts) for row in range(counts[category])]
    sizes: Counter[int] = Counter()
    found = defaultdict(set)
    for number, (category, _) in enumerate(rows):
        partition = placement.partition(category, 0, number)
        sizes[partition] += 1
        found[category].add(partition)
    assert all(0 <= partition < placement.num_partitions for partition in sizes)
    # A category is in no more partitions than its rows fill, and one more at each end.
    assert all(len(partitions) <= counts[category] / per_partition + 2 for category, partitions in found.items())
    # The salt is even on average: five standard deviations of a draw above what is meant.
    assert all(size <= per_partition + 5 * per_partition**0.5 + 1 for size in sizes.values())


def test_a_row_whose_category_was_not_counted_has_a_place() -> None:
    """Its category could be read, the whole row could not."""
    placement = Placement.of({"a": 300, "b": 0}, 10)
    assert placement.partition("b", 0, 0) == placement.partition("", 0, 7) == 0
    assert Placement.of({}, 10).num_partitions == 1
    assert Placement.of({}, 10).partition("", 0, 7) == 0


def test_the_size_of_a_partition() -> None:
    assert rows_per_partition(10**6, 10**10) == shuffle.PARTITION_BYTES // 10**4
    assert rows_per_partition(10**6, 10**6) == shuffle.PARTITION_ROWS, "however small they seem to be"
    assert rows_per_partition(5, 10**12) == 1
    assert rows_per_partition(0, 0) == 1


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
RECORDS = st.builds(
    PreparedRecord,
    st.integers(0, 5),
    st.integers(0, 2**40),
    st.builds(Record, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3)),
    TEXTS,
)
DEAD_ROWS = st.builds(
    DeadRow,
    st.integers(0, 5),
    st.integers(0, 2**40),
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.just("prepare"),
    TEXTS,
    TEXTS,
    st.none() | TEXTS,
)
DEALT = st.builds(DealtRow, RECORDS | DEAD_ROWS, st.integers(0, 3), TEXTS, st.integers(0, 99), st.integers(0, 99))


@given(st.lists(DEALT, max_size=20))
def test_a_clustered_file_gives_back_every_row_sorted(rows: list[DealtRow]) -> None:
    data = encode(to_table(rows))
    found = pq.read_table(pa.BufferReader(data)).to_pylist()
    keys = [(values["partition"], values["category_key"].encode(), values["file"], values["row"]) for values in found]
    assert keys == sorted(keys)
    read = [(from_values(values), source_piece(values)) for values in found]
    wanted = [
        (
            row.outcome,
            RowRange(row.outcome.file, row.outcome.row, row.outcome.row + 1, 1, row.byte_start, row.byte_stop),
        )
        for row in rows
    ]
    assert sorted(map(repr, read)) == sorted(map(repr, wanted))
    # The order of the fields is their order in the prompt.
    orders = {
        repr(outcome): list(outcome.record.fields) for outcome, _ in wanted if isinstance(outcome, PreparedRecord)
    }
    assert all(orders[repr(each)] == list(each.record.fields) for each, _ in read if isinstance(each, PreparedRecord))
    assert sum(num_rows for num_rows, _ in segments(data)) == len(rows)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**9)), unique=True, min_size=1), st.randoms())
def test_the_sum_of_identities(rows: list[tuple[int, int]], random: Any) -> None:
    shuffled = random.sample(rows, len(rows))
    assert identity_sum(shuffled) == identity_sum(rows)
    assert identity_sum(shuffled[1:]) != identity_sum(rows)
    assert identity_sum([*rows, rows[0]]) != identity_sum(rows)
    assert identity_sum([(rows[0][0], rows[0][1] + 10**10), *rows[1:]]) != identity_sum(rows)


NUM_CATEGORIES = 12


def write_catalog(workplace: Workplace) -> None:
    """Many categories, row by row another; Parquet and JSONL; every kind of row that is refused."""
    names = [f"Kind {number:02}" for number in range(NUM_CATEGORIES)]
    schemas = {name: [{"name": f"Brand of {name}"}, {"name": "Weight", "type": "number"}] for name in names}
    (workplace.folder / "schemas.yaml").write_text(yaml.safe_dump({"categories": schemas}), encoding="utf-8")
    rows = [product(number, category=names[number * 5 % NUM_CATEGORIES]) for number in range(160)]
    huge = [product(number, category=names[3]) for number in range(200, 240)]
    bad = [product(301, category="Hats"), product(302, title="", bullets=[]), product(303, category=None)]
    workplace.write_parquet("a.parquet", [*rows[:90], *bad, *huge], row_group_size=32)
    lines = ["", *rows[90:120], "{broken", *[product(400 + n, category="Hats") for n in range(4)], *rows[120:], "[1]"]
    workplace.write_jsonl("b.jsonl", lines)


@pytest.fixture
def varied(workplace: Workplace, shared_ray: None, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A catalog of twelve categories, and partitions so small that the largest is spread over several."""
    monkeypatch.setattr(shuffle, "PARTITION_BYTES", 4000)
    write_catalog(workplace)
    workplace.changes = {"max_dead_letter_share": 1.0, "shards": {"target_tokens": 900, "ramp": []}}
    return workplace


def clustered(**changes: Any) -> dict[str, Any]:
    return {"shards": {"target_tokens": 900, "ramp": [], "cluster_by_category": True}} | changes


# Of the run, or of the company in which a row was decoded: the last digits of its probabilities.
_OF_THE_RUN = (
    *("run_id", "engine_seconds", "cascade_seconds", "attempts"),
    *("logprob_mean", "logprob_min", "probability", "margin", "confidence"),
)


def rows_of(output: Path, table: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in _OF_THE_RUN} for row in read_table(output, table)]


def categories_of_parts(output: Path) -> list[set[str]]:
    return [set(pq.read_table(part)["category"].to_pylist()) for part in sorted((output / "products").glob("*"))]


@pytest.mark.full
def test_the_same_answers_from_shards_of_few_categories(varied: Workplace) -> None:
    plain, out = varied.folder / "plain", varied.folder / "out"
    engine = varied.document()["engine"] | {"max_cached_prefixes": 2}
    varied.run(output=str(plain), engine=engine)
    outcome = varied.run(**clustered(engine=engine))
    assert outcome.discrepancy is None
    for table in ("products", "attributes", "dead_letter"):
        assert rows_of(out, table) == rows_of(plain, table), table
    assert len(rows_of(out, "dead_letter")) == 9
    assert all(row["row_json"] for row in rows_of(out, "dead_letter")), "the whole row, for a repair"
    before, after = categories_of_parts(plain), categories_of_parts(out)
    assert sum(map(len, after)) < 0.5 * sum(map(len, before)), (before, after)
    assert sum("Kind 03" in each for each in after) > 1, "a large category is in several shards"
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["clustering"]["categories"] == NUM_CATEGORIES
    assert manifest["clustering"]["partitions"] > 3
    assert not (out / "_clustered").exists(), "removed with the rest of what only the way there needed"
    tokens = [sum(row["prefix_tokens_computed"] for row in read_table(each, "metrics")) for each in (plain, out)]
    assert tokens[1] < tokens[0]
    assert varied.run(**clustered()).was_finished


@pytest.mark.soak
def test_a_limit_and_failed_rows_alone(varied: Workplace) -> None:
    out = varied.folder / "out"
    varied.run(limit=50, **clustered())
    assert [row["source_row"] for row in rows_of(out, "products")] == list(range(50))
    first = varied.folder / "first"
    varied.run(**clustered(output=str(first)))
    document = yaml.safe_load((varied.folder / "schemas.yaml").read_text())
    document["categories"]["Hats"] = [{"name": "Brand"}]
    (varied.folder / "schemas.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    again = varied.folder / "again"
    varied.run(**clustered(output=str(again), retry_failed=str(first)))
    assert {row["category"] for row in rows_of(again, "products")} == {"Hats"}
    assert len(rows_of(again, "products")) == 5
    assert len(rows_of(again, "dead_letter")) == 4


@pytest.mark.soak
def test_a_run_that_takes_over_from_a_clustered_one(varied: Workplace) -> None:
    varied.run(**clustered(output=str(varied.folder / "first")))
    outcome = varied.run(**clustered(base=str(varied.folder / "first")))
    assert outcome.totals.carried["products"] == outcome.totals.products == 200
    first, second = ([row["values"] for row in rows_of(varied.folder / each, "products")] for each in ("first", "out"))
    assert first == second
    assert rows_of(varied.folder / "first", "dead_letter") == rows_of(varied.folder / "out", "dead_letter")


@pytest.mark.full
def test_a_clustering_that_loses_a_row_is_no_clustering(varied: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shuffle._deal

    def one_less(*arguments: Any) -> Any:
        files, tally = real(*arguments)
        tally.add(-1, -identity_sum([(0, 5)]))
        return files, tally

    monkeypatch.setattr(shuffle, "_deal", one_less)
    with pytest.raises(RunError, match=r"mixed up rows: 209 were read, 208 arrived\. Start the job again"):
        varied.run(**clustered())
    out = varied.folder / "out"
    assert not (out / "_clusters.json").exists()
    assert read_status(str(out)).planned_shards is None
    # What an earlier start left behind is in nobody's way.
    assert list((out / "_clustered").glob("*/*.parquet"))
    monkeypatch.undo()
    monkeypatch.setattr(shuffle, "PARTITION_BYTES", 4000)
    assert varied.run(**clustered()).discrepancy is None
    assert not (out / "_clustered").exists()


@pytest.mark.full
def test_a_run_goes_on_with_the_shards_that_it_began_with(varied: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the clustering and a few commits; the next start has another idea of what to cluster."""
    out = varied.folder / "out"
    with monkeypatch.context() as patch, faulty.at_most_four_shards(out):
        patch.setattr("pipelines.job.rounds._is_spent", lambda config, totals: totals.shards >= 3)
        with pytest.raises(BudgetError):
            varied.run(**clustered(cost={"max_usd": 1.0, "usd_per_hour": 1.0}))
    clusters = Clusters.read(Folder(str(out)))
    assert clusters is not None
    status = read_status(str(out))
    assert status.planned_shards == len(clusters.shards)
    assert 3 <= status.totals.shards < len(clusters.shards)
    monkeypatch.setattr(shuffle, "_count", None)
    outcome = varied.run(shards={"target_tokens": 100_000})
    assert outcome.discrepancy is None
    assert outcome.totals.shards == len(clusters.shards)
    assert len(rows_of(out, "products")) == 200


@pytest.mark.full
def test_a_pass_that_is_interrupted_is_repeated(varied: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray says so when a node is gone that held a part of the shuffle."""
    real, tries, most = shuffle._deal, list[int](), 3

    def lose_a_node(*arguments: Any) -> Any:
        tries.append(1)
        if len(tries) < most:
            raise ActorUnschedulableError("the node is gone")
        return real(*arguments)

    monkeypatch.setattr(shuffle, "_deal", lose_a_node)
    assert varied.run(**clustered(decoding="made-up")).discrepancy is None
    assert len(tries) == 3
    tries.clear()
    most = 10
    with pytest.raises(RunError, match="interrupted 4 times"):
        varied.run(**clustered(output=str(varied.folder / "never")))
    assert len(tries) == 4


@pytest.mark.soak
def test_a_text_that_is_none_in_a_catalog_without_other_faults(varied: Workplace) -> None:
    """The pass that counts reads categories only, and finds nothing wrong."""
    for path in varied.catalog.iterdir():
        path.unlink()
    rows = [product(number, category="Kind 03") for number in range(20)]
    path = varied.write_parquet("one.parquet", rows)
    table = pq.read_table(path)
    titles = pa.array([b"\xff\xfe" if number == 7 else row["title"].encode() for number, row in enumerate(rows)])
    at = table.schema.get_field_index("title")
    pq.write_table(table.set_column(at, "title", titles.view(pa.string())), path)
    plain, out = varied.folder / "plain", varied.folder / "out"
    for changes in ({"output": str(plain)}, clustered()):
        assert varied.run(decoding="made-up", **changes).discrepancy is None
    assert [(row["source_row"], row["error_code"]) for row in rows_of(out, "dead_letter")] == [(7, "unreadable")]
    assert rows_of(out, "dead_letter") == rows_of(plain, "dead_letter")
    assert rows_of(out, "products") == rows_of(plain, "products")


@pytest.mark.soak
def test_a_run_that_has_lost_its_clusters_is_not_mixed_with_another_cut(
    varied: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, faulty.at_most_four_shards(varied.folder / "out"):
        patch.setattr("pipelines.job.rounds._is_spent", lambda config, totals: totals.shards >= 3)
        with pytest.raises(BudgetError):
            varied.run(**clustered(decoding="made-up", cost={"max_usd": 1.0, "usd_per_hour": 1.0}))
    (varied.folder / "out" / "_clusters.json").unlink()
    with pytest.raises(RunError, match=r"_clusters\.json is missing; begin in another output folder"):
        varied.run(**clustered(decoding="made-up"))


@pytest.mark.full
def test_the_price_from_a_clustered_run_has_an_interval(varied: Workplace) -> None:
    """Its categories lie in a shard each: their products have to be told apart otherwise."""
    varied.run(**clustered(decoding="made-up"))
    earlier = read_earlier(str(varied.folder / "out"))
    assert all((counts > 0).sum() > 1 for counts in earlier.counts.values())
    assert sum(counts.sum() for counts in earlier.counts.values()) == 200
