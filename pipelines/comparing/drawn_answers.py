"""Sample of the answers in which two runs differ."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipelines.comparing.join_database import JoinDatabase
from pipelines.quality.run_answers import RowKey


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """Place of a pair's row in one run."""

    shard: int
    key: RowKey


@dataclass(frozen=True, slots=True)
class Sampled:
    """An attribute that the two runs answer differently."""

    category: str
    attribute: str
    product_id: str
    a: AnswerPlace
    b: AnswerPlace


def draw_answers(
    db: JoinDatabase,
    order: Sequence[tuple[str, str]],
    limit: int,
    seed: int,
    labelled: Iterable[RowKey],
    *,
    text_changed: bool = False,
) -> list[Sampled]:
    """Draw at most `limit` answers with another value, decision or source, by a hash of `seed` and row.

    Dead-lettered rows are left out.

    Args:
        order: (category, attribute) pairs. One answer of each is drawn, then a second, and so on; sorted by this order.
        labelled: rows of A that are drawn before all others. Answers that differ come next.
        text_changed: draw from rows whose text changed; else from the others.
    """
    if limit == 0:
        return []
    known = [(key.source_file, key.source_row) for key in labelled]
    db.put("labels", ["file", "source_row"], [(file, row) for file, row in known])
    db.put("names", ["attribute", "name"], list(enumerate(db.attributes.names)))
    db.put("files", ["number", "name"], list(enumerate(db.files.names)))
    key = "f.name, r.source_row" if db.by_row else "r.product_id"
    found = db.rows(
        f"""
        select category, attribute, min_by(pair, rank, {limit})
        from (select c.pair, c.category, c.attribute,
                     concat(if(l.file is null, '1', '0'), if(c.is_same, '1', '0'),
                            md5(concat_ws('|', {seed}, n.name, {key}))) as rank
              from compared c join rows_a r on r.id = c.pair join names n using (attribute)
              join files f on f.number = r.file
              left join labels l on l.file = r.file and l.source_row = r.source_row
              where (not c.is_same or c.trust_changed) and c.text_changed = {text_changed}
                and c.status_a not in ('not_asked', 'dead_letter')
                and c.status_b not in ('not_asked', 'dead_letter'))
        group by category, attribute
        """
    )
    names = {
        (db.categories.names[category], db.attributes.names[attribute]): pairs for category, attribute, pairs in found
    }
    rounds = itertools.zip_longest(*(names.get(each, []) for each in order))
    drawn = [(position, pair) for each_round in rounds for position, pair in enumerate(each_round) if pair is not None][
        :limit
    ]
    places = _places(db, [pair for _, pair in drawn])
    found_places = ((order[position], places[pair]) for position, pair in sorted(drawn, key=lambda each: each[0]))
    return [
        Sampled(category, attribute, product_id, place_a, place_b)
        for (category, attribute), (product_id, place_a, place_b) in found_places
    ]


def _places(db: JoinDatabase, pairs: Sequence[int]) -> dict[int, tuple[str, AnswerPlace, AnswerPlace]]:
    db.put("wanted", ["pair"], [(pair,) for pair in pairs])
    rows = db.rows(
        """
        select pair, a.product_id, a.file, a.source_row, p.id_b, b.file, b.source_row
        from wanted join pairs p using (pair) join rows_a a on a.id = pair join rows_b b on b.id = p.id_b
        """
    )
    return {
        pair: (product_id, _place(db, "a", pair, file_a, row_a), _place(db, "b", id_b, file_b, row_b))
        for pair, product_id, file_a, row_a, id_b, file_b, row_b in rows
    }


def _place(db: JoinDatabase, name: str, number: int, file: int, row: int) -> AnswerPlace:
    shard = db.sides[name].shards[bisect.bisect_right(db.starts[name], number) - 1]
    return AnswerPlace(shard, RowKey(db.files.names[file], row))
