"""Schemas of a run with edited ones in their place, and names of the edited ones that the run does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpd_core import CategorySchema
from hpd_core.text.near_names import NearNames, listed, quoted
from pipelines.errors import UsageError

_MAX_NOTES = 10

Schemas = Mapping[str, CategorySchema]


def with_edited(before: Schemas, edited: Schemas) -> dict[str, CategorySchema]:
    """Return the run's schemas with edited attributes in place of its own; attributes the run lacks are left out."""
    found = {}
    for category, schema in before.items():
        new = edited.get(category, schema)
        attributes = {each.name: each for each in new.attributes}
        kept = tuple(attributes.get(each.name, each) for each in schema.attributes)
        found[category] = CategorySchema.model_validate({**dict(new), "attributes": kept})
    return found


def refuse_strange(before: Schemas, edited: Schemas, run: str, place: str) -> None:
    """Raise `UsageError` if the edited schemas have no attribute of the run's: none of its values could change.

    Args:
        run: name of the run.
        place: origin of the edited schemas.
    """
    common = [category for category in edited if category in before]
    if any(_names(edited[category]) & _names(before[category]) for category in common):
        return
    reason = f"nothing in {place} is of the run {run}, so nothing would change"
    if common:
        category = common[0]
        ours, theirs = listed(sorted(_names(edited[category]))), listed(sorted(_names(before[category])))
        shown = f"the attributes of {quoted(category)} are {ours} there, and {theirs} in the run"
    else:
        shown = f"its categories are {listed(sorted(edited))}, the run's {listed(sorted(before))}"
    near = next((note for note, is_near in _unknown(before, edited) if is_near), None)
    hint = f" ({near})" if near is not None else ""
    raise UsageError(f"{reason}: {shown}{hint}. Write the names as the run has them")


def unknown_notes(before: Schemas, edited: Schemas, place: str) -> list[str]:
    """Return a line for each of the first categories and attributes that the run does not have, misspelt ones first."""
    found = sorted(_unknown(before, edited), key=lambda each: not each[1])
    notes = [f"{place}: {note}" for note, _ in found[:_MAX_NOTES]]
    if len(found) > _MAX_NOTES:
        notes.append(f"and {len(found) - _MAX_NOTES:,} more names in {place} that the run does not have")
    return notes


def _unknown(before: Schemas, edited: Schemas) -> Iterator[tuple[str, bool]]:
    """Yield a note for each name that the run does not have, and whether the run has one like it.

    A name that the edited schemas have themselves is not suggested for another one of them.
    """
    categories = NearNames(each for each in before if each not in edited)
    for category, schema in edited.items():
        if category not in before:
            hint = categories.hint(category)
            yield _note(f"the run has no category {quoted(category)}", hint)
            continue
        names = _names(before[category])
        attributes = NearNames(names - _names(schema))
        for each in schema.attributes:
            if each.name not in names:
                hint = attributes.hint(each.name)
                yield _note(f"the run has no attribute {quoted(each.name)} in {quoted(category)}", hint)


def _note(said: str, hint: str) -> tuple[str, bool]:
    return (f"{said}; {hint}", True) if hint else (said, False)


def _names(schema: CategorySchema) -> set[str]:
    return {each.name for each in schema.attributes}
