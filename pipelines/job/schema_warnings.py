"""Warnings about schemas that the job's model cannot answer, found before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpd_core import CategorySchema, HPDError
from hpd_core.text.template import render_attribute
from pipelines.config.extraction import JobConfig
from pipelines.errors import UsageError

_SHOWN = 10
# Schemas below this size, in bytes and positions, fit into any model's context.
_SMALL = 2500
# Tokens are usually longer, so a shorter label needs no closer look.
_BYTES_PER_TOKEN = 2


def schema_warnings(config: JobConfig, schemas: Mapping[str, CategorySchema]) -> list[str]:
    """Return a line for each of the first problems. Load the tokenizer, which takes seconds, only for large schemas.

    Raises `UsageError` if no product of any category can be decoded.
    """
    refuse_verbatim(config, schemas)
    asked = {attribute.name for schema in schemas.values() for attribute in schema.attributes}
    if unknown := config.input.copied.keys() - asked:
        raise UsageError(f"input.copied: no category of {config.schemas} has {', '.join(map(repr, sorted(unknown)))}")
    suspects = [schema for schema in schemas.values() if _may_be_tight(schema, config)]
    if not suspects:
        return []
    # Imports torch: jobs with schemas of ordinary size do without.
    from hpd_core.requests.schema_room import SchemaRoom

    try:
        room = SchemaRoom.from_pretrained(config.model, config.engine, config.decoding)
    except HPDError as error:
        return [f"whether the schemas fit into the model's context is not known: {error}"]
    problems = [problem for schema in suspects for problem in room.problems(schema)]
    if {problem.category for problem in problems if problem.is_fatal} == set(schemas):
        raise UsageError("\n  ".join([f"{config.schemas}: no product can be decoded", *_shown(problems)]))
    return list(_shown(problems))


def refuse_verbatim(config: JobConfig, schemas: Mapping[str, CategorySchema]) -> None:
    """Raise `UsageError` if an attribute is verbatim and a model of the job cannot copy."""
    engines = [("engine", config.engine)]
    if config.cascade is not None:
        engines.append(("cascade.engine", config.cascade.engine))
    problems = [f"{name}: it {problem}" for name, engine in engines if (problem := engine.why_not_verbatim)]
    if config.decoding == "ar":
        problems.append("decoding: 'ar' writes what it likes, set it to 'hpd'")
    named = (
        f"{each.name!r} of {schema.category!r}"
        for schema in schemas.values()
        for each in schema.attributes
        if each.verbatim
    )
    if problems and (attribute := next(named, None)) is not None:
        raise UsageError(f"{config.schemas}: attribute {attribute} is verbatim. {problems[0]}")


def _shown(problems: Sequence[object]) -> Iterator[str]:
    yield from map(str, problems[:_SHOWN])
    if len(problems) > _SHOWN:
        yield f"and {len(problems) - _SHOWN:,} more problems of this kind with the schemas"


def _may_be_tight(schema: CategorySchema, config: JobConfig) -> bool:
    """Return whether a schema needs a closer look with the tokenizer; takes microseconds, by lengths alone."""
    limits = [attribute.max_value_tokens or config.engine.max_value_tokens for attribute in schema.attributes]
    listed = config.engine.prompt.max_listed_values
    size = sum(len(render_attribute(attribute, listed).encode()) for attribute in schema.attributes)
    is_in_a_row = config.engine.layout == "stacked" or config.decoding == "ar"
    if size + (sum(limits) if is_in_a_row else max(limits)) > _SMALL or min(limits) <= 2:
        return True
    return any(
        len(member.encode()) > _BYTES_PER_TOKEN * limit
        for attribute, limit in zip(schema.attributes, limits, strict=True)
        for member in attribute.labels
    )
