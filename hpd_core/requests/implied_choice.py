"""Values that a text implies and does not state, of attributes with `implied`: one of an enum's values, never null.

A value's score is its log-probability after the document, less that after an empty one: what the model says of any
product counts for nothing (domain-conditional PMI; Holtzman et al., "Surface Form Competition", 2021). A model also
favours places in a list, so the score is the mean over the values as they are listed and in reverse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields, replace

from hpd_core.requests.calls import (
    Completion,
    CompletionFuture,
    ExtractionFuture,
    ExtractionMetrics,
    OpenBranch,
    Trunk,
    TrunkCompletions,
    not_text,
    schema_of,
)
from hpd_core.text.template import render_document
from hpd_core.text.value_kinds import OneOf
from hpd_core.types import Attribute, CategorySchema, Record, RecordResult, Value

_Wanted = Sequence[Collection[str] | None] | None
_Trunks = Callable[[CategorySchema], tuple[Trunk, Sequence[str]]]


def add_implied(
    answered: ExtractionFuture,
    records: Sequence[Record],
    schemas: Mapping[str, CategorySchema],
    wanted: _Wanted,
    open_trunk: _Trunks,
    complete: Callable[[Sequence[Trunk], Sequence[Sequence[OpenBranch]]], CompletionFuture],
) -> ExtractionFuture:
    """Return the future of `answered`, but with the implied attributes chosen. It takes four passes: two over each
    document, two over each category.

    Args:
        answered: of a submission of these records.
        open_trunk: returns the trunk of a category's records without a document, and its attributes' keys.
        complete: `Engine.complete`.
    """
    ways: dict[str, list[tuple[Trunk, Sequence[str]]]] = {}
    trunks: list[Trunk] = []
    branches: list[list[OpenBranch]] = []
    places: dict[tuple[str, int | None], int] = {}

    def ask(schema: CategorySchema, key: tuple[str, int | None], text: str) -> None:
        places[key] = len(trunks)
        for trunk, keys in ways[key[0]]:
            trunks.append(replace(trunk, text=text))
            branches.append([OpenBranch(keys[at], OneOf((label,))) for at, label in _choices(schema)])

    for number, record in enumerate(records):
        schema, asked = schema_of(record, schemas), wanted[number] if wanted is not None else None
        if schema is None or not schema.has_implied or not_text(record) is not None:
            continue
        if asked is not None and not any(each.implied and each.name in asked for each in schema.attributes):
            continue
        if record.category not in ways:
            ways[record.category] = [open_trunk(schema), open_trunk(_in_reverse(schema))]
            ask(schema, (record.category, None), "")
        ask(schema, (record.category, number), render_document(record.fields))
    if not trunks:
        return answered
    future, scored = ExtractionFuture(), complete(trunks, branches)

    def finish(_: Future[list[RecordResult]]) -> None:
        try:
            results, found = list(answered.result()), scored.result()
            for (category, number), place in places.items():
                if number is not None and results[number].error is None:
                    empty = places[category, None]
                    ways_of = zip(found[place : place + 2], found[empty : empty + 2], strict=True)
                    values = _chosen(schemas[category], list(ways_of))
                    asked = wanted[number] if wanted is not None else None
                    own = {name: value for name, value in values.items() if asked is None or name in asked}
                    results[number] = replace(results[number], values={**results[number].values, **own})
            for metrics in (scored.metrics, answered.metrics):
                for each in fields(ExtractionMetrics):
                    before = getattr(future.metrics, each.name)
                    setattr(future.metrics, each.name, before + getattr(metrics, each.name))
            future.metrics.num_records = answered.metrics.num_records
            future.metrics.num_errors = answered.metrics.num_errors
            future.set_result(results)
        except Exception as error:
            future.set_exception(error)

    scored.add_done_callback(lambda _: answered.add_done_callback(finish))
    return future


def _choices(schema: CategorySchema) -> list[tuple[int, str]]:
    """Return the number and the labels of each implied attribute, one by one."""
    attributes = enumerate(schema.attributes)
    return [(at, label) for at, attribute in attributes if attribute.implied for label in attribute.labels]


def _in_reverse(schema: CategorySchema) -> CategorySchema:
    def turned(attribute: Attribute) -> Attribute:
        values = attribute.values
        return attribute.model_copy(update={"values": values[::-1]}) if attribute.implied and values else attribute

    return schema.model_copy(update={"attributes": tuple(map(turned, schema.attributes))})


def _chosen(schema: CategorySchema, ways: Sequence[tuple[TrunkCompletions, TrunkCompletions]]) -> dict[str, Value]:
    """Return the likeliest value of each implied attribute; none if a document was too long, or numbers are not finite.

    `ways`: what was found of a document and of an empty one, for each order of the values.
    """
    scores: dict[str, list[tuple[float, str, Completion]]] = {}
    if any(each.error is not None for pair in ways for each in pair):
        return {}
    for place, (at, label) in enumerate(_choices(schema)):
        own = [[_logprob(each.branches[place]) for each in pair] for pair in ways]
        score = sum(document - empty for document, empty in own) / len(own)
        scores.setdefault(schema.attributes[at].name, []).append((score, label, ways[0][0].branches[place]))
    return {name: _value(own) for name, own in scores.items() if all(math.isfinite(score) for score, *_ in own)}


def _logprob(completion: Completion) -> float:
    return math.nan if completion.logprob_mean is None else completion.num_tokens * completion.logprob_mean


def _value(scores: Sequence[tuple[float, str, Completion]]) -> Value:
    (score, label, written), *others = sorted(scores, key=lambda each: -each[0])
    share = 1 / sum(math.exp(other - score) for other, *_ in scores)
    return Value(
        label,
        (label,),
        "value",
        raw=written.raw,
        num_tokens=written.num_tokens,
        logprob_mean=written.logprob_mean,
        logprob_min=written.logprob_min,
        choice="scored",
        probability=share,
        margin=score - others[0][0] if others else None,
    )
