"""People's answers in an earlier run, carried over while the text stays and the attribute is asked for.

They are matched by content, as everything carried over: a person's answer belongs to a text, whichever model reads it.
An attribute that was edited since keeps the answer if its new form still allows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hpd_core import Attribute, CategorySchema
from pipelines.normalising.measured_text import NORMALISED_COLUMNS
from pipelines.normalising.normalise import Normaliser
from pipelines.store.folders import Folder, map_requests
from pipelines.store.layer import Layer, by_answer, is_written
from pipelines.store.tables import ATTRIBUTES, completed, read_columns, read_part
from pipelines.store.texts_in_run import LeftOutReviews
from pipelines.store.verdicts import AnswerKey, ItemError, checked_items, with_unit

Row = Mapping[str, Any]

_LOOKED_AT = ["source_file", "source_row", "attribute", "source"]


@dataclass(frozen=True)
class ReviewedAnswers:
    """People's answers in an earlier run.

    Attributes:
        rows: rows of the attribute table, with one answer for each text and attribute.
        before: schemas of the earlier run.
        left_out: verdicts there on other texts or answers than that run has, or on rows that it does not have.
    """

    rows: pa.Table
    before: Mapping[str, CategorySchema]
    left_out: Sequence[LeftOutReviews]

    @classmethod
    def read(cls, run: Folder, schemas: Mapping[str, CategorySchema]) -> ReviewedAnswers:
        """Read four columns of every answer of the run, and all columns of parts that hold a person's answer.

        Raises `RunError`, `UsageError` or `OSError` if something cannot be read.

        Args:
            schemas: schemas by which the run's values are normalised.
        """
        layer = Layer.open(run, schemas)
        names = [name for name in run.list("attributes") if name.endswith(".parquet")]
        parts = map_requests(lambda name: _reviewed_rows(run, name, layer), names)
        found: dict[tuple[str, str], Sequence[Row]] = {}
        answers = [answer for part in parts for answer in part.items()]
        for key, rows in sorted(answers, key=lambda answer: _age(layer, answer[0])):
            # Two products of one text: the last word on either counts for both.
            found[rows[0]["input_hash"], key.attribute] = rows
        table = pa.Table.from_pylist([row for rows in found.values() for row in rows], schema=ATTRIBUTES)
        return cls(table, schemas, layer.left_out)

    def __len__(self) -> int:
        return int(pc.sum(pc.equal(self.rows["value_index"], 0)).as_py() or 0)

    def find(self, hashes: Iterable[str], schemas: Mapping[str, CategorySchema]) -> dict[str, dict[str, list[Row]]]:
        """Return rows by input hash and attribute, of answers still asked for and still allowed by the attribute."""
        if not self.rows.num_rows:
            return {}
        wanted = pa.array(list(hashes), pa.string())
        found: defaultdict[str, dict[str, list[Row]]] = defaultdict(dict)
        answers = by_answer(self.rows.filter(pc.is_in(self.rows["input_hash"], wanted)).to_pylist())
        for key, rows in answers.items():
            category = rows[0]["category"]
            now, then = (_attribute(each.get(category), key.attribute) for each in (schemas, self.before))
            kept = rows if now == then else _again(rows, now)
            if now is not None and kept:
                found[rows[0]["input_hash"]][key.attribute] = list(kept)
        return found


def _reviewed_rows(run: Folder, name: str, layer: Layer) -> dict[AnswerKey, list[Row]]:
    part = read_columns(run, "attributes", name, _LOOKED_AT)
    if not pc.any(pc.equal(part["source"], "review")).as_py() and not layer.places(part):
        return {}
    rows = layer.apply(completed("attributes", read_part(run, f"attributes/{name}")))
    return by_answer(rows.filter(pc.equal(rows["source"], "review")).to_pylist())


def _age(layer: Layer, key: AnswerKey) -> tuple[float, AnswerKey]:
    """Return a sort key by time of the verdict; an answer carried into that run is older than any verdict on it."""
    correction = layer.corrections.get(key)
    return (correction.verdict.time.timestamp() if correction is not None else 0.0), key


def _attribute(schema: CategorySchema | None, name: str) -> Attribute | None:
    return next((each for each in schema.attributes if each.name == name), None) if schema is not None else None


def _again(rows: Sequence[Row], attribute: Attribute | None) -> Sequence[Row] | None:
    """Return the rows as answers of an edited attribute; None if it does not allow them."""
    if attribute is None or rows[0]["status"] != "value":
        return rows if attribute is not None else None
    written = is_written(rows[0]["source"], rows[0]["num_tokens"])
    unit = attribute.unit.want if attribute.unit is not None else None
    if written and any(with_unit(row["value_raw"], unit) != row["value_raw"] for row in rows):
        return None  # whoever wrote the bare number saw no unit
    try:
        # A person's text is put into the attribute's new form; a model's text is read with the text around it.
        items = checked_items(attribute, [row["value_raw"] for row in rows])
    except ItemError:
        return None
    if written and len(items) != len(rows):
        return None
    normaliser, nothing = Normaliser(attribute), dict.fromkeys(NORMALISED_COLUMNS)
    found = []
    for place, row in enumerate(rows):
        raw = items[place] if written else row["value_raw"]
        cells = normaliser.columns(raw, None if written else row["evidence"])
        found.append({**row, **nothing, "value_raw": raw, **cells})
    return found
