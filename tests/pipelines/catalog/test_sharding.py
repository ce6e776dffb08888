from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipelines.catalog.input_files import SourceFile
from pipelines.catalog.sharding import Shard, plan_shards
from pipelines.config.operation import ShardConfig


def parquet(name: str, *groups: tuple[int, int]) -> SourceFile:
    return SourceFile(name, "parquet", 1, "f", *map(list, zip(*groups, strict=True)) if groups else ([], []))


def jsonl(name: str, lengths: list[int], blank: set[int]) -> SourceFile:
    counts = array("B", (line not in blank for line in range(len(lengths))))
    return SourceFile(name, "jsonl", sum(lengths), "f", counts, array("Q", lengths))


def covered(shards: list[Shard]) -> list[tuple[int, int]]:
    return [(p.file, row) for shard in shards for p in shard.pieces for row in range(p.start, p.stop)]


lines = st.lists(st.integers(1, 3000), max_size=30)
sources = st.one_of(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 100_000)), max_size=4).map(lambda g: parquet("p", *g)),
    st.builds(
        lambda lengths, blank: jsonl("j", lengths, {index for index in blank if index < len(lengths)}),
        lines,
        st.sets(st.integers(0, 29)),
    ),
)
configs = st.builds(
    ShardConfig,
    target_tokens=st.integers(1, 20_000),
    max_rows=st.integers(1, 500),
    ramp=st.lists(st.floats(0.01, 1.0), max_size=3).map(tuple),
)


@given(st.lists(sources, max_size=4), configs, st.integers(0, 200), st.integers(1, 5))
def test_every_row_is_in_exactly_one_shard_in_order(
    files: list[SourceFile], config: ShardConfig, row_tokens: int, num_actors: int
) -> None:
    shards = plan_shards(files, config, row_tokens, num_actors)
    rows = covered(shards)
    assert rows == sorted(set(rows))
    blank = {
        (index, row)
        for index, file in enumerate(files)
        if file.format == "jsonl"
        for row, count in enumerate(file.row_counts)
        if count == 0
    }
    every = [
        (index, row)
        for index, file in enumerate(files)
        for row in range(file.num_rows if file.format == "parquet" else len(file.row_counts))
    ]
    assert set(every) - blank <= set(rows) <= set(every)
    assert sum(shard.num_rows for shard in shards) == len(set(every) - blank)
    assert [shard.id for shard in shards] == list(range(len(shards)))
    assert all(shard.num_rows > 0 for shard in shards)


@given(st.lists(sources, max_size=4), configs, st.integers(0, 200), st.integers(1, 5))
def test_shards_keep_their_caps_unless_a_single_row_breaks_them(
    files: list[SourceFile], config: ShardConfig, row_tokens: int, num_actors: int
) -> None:
    for shard in plan_shards(files, config, row_tokens, num_actors):
        assert shard.num_rows <= config.max_rows
        if shard.num_rows > 1:
            # A quarter more to end with a row group, and rounding.
            assert shard.estimated_tokens <= config.target_tokens * 1.25 + row_tokens + 1


@given(st.lists(sources, max_size=3), configs, st.integers(1, 500))
def test_a_limit_takes_the_first_rows(files: list[SourceFile], config: ShardConfig, limit: int) -> None:
    available = sum(file.num_rows for file in files)
    whole = covered(plan_shards(files, config, 10, 1))
    shards = plan_shards(files, config, 10, 1, limit)
    assert sum(shard.num_rows for shard in shards) == min(limit, available)
    assert set(covered(shards)) <= set(whole)


@given(lines, st.sets(st.integers(0, 29)), configs)
def test_pieces_of_jsonl_name_their_bytes(lengths: list[int], blank: set[int], config: ShardConfig) -> None:
    file = jsonl("j", lengths, {index for index in blank if index < len(lengths)})
    for shard in plan_shards([file], config, 10, 1):
        for piece in shard.pieces:
            assert piece.byte_start == sum(lengths[: piece.start])
            assert piece.byte_stop == sum(lengths[: piece.stop])


@given(st.lists(st.integers(0, 7), min_size=1, max_size=9), st.integers(1, 40))
def test_a_spread_sample_is_evenly_spaced_whatever_the_row_groups_are(groups: list[int], limit: int) -> None:
    file, total = parquet("a", *((rows, 10 * rows) for rows in groups)), sum(groups)
    rows = [row for _, row in covered(plan_shards([file], ShardConfig(), 1, 1, limit, is_spread=True))]
    assert len(rows) == min(limit, total)
    gaps = [after - before for before, after in pairwise([-1, *rows])]
    assert not rows or (rows[-1] == total - 1 and max(gaps) - min(gaps) <= 1)
