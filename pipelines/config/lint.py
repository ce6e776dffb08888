"""Lint of schema files: what is allowed but probably not meant, and what can never be answered."""

from __future__ import annotations

import html
import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpd_core import Attribute, CategorySchema, Member, Unit
from hpd_core.text import absence
from hpd_core.text.near_names import NearNames, difference, fold_name, fold_spelling, is_blank, unseen
from hpd_core.types import is_encodable
from pipelines.config.spots import Remark
from pipelines.normalising.units import is_known, meanings_of, same_kind, wanted_unit

_MAX_ATTRIBUTES = 64  # what the engine is tested with
_MAX_DESCRIPTION = 500  # letters


def lint(schemas: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """Yield remarks on what is allowed in `schemas` but probably not meant."""
    for category, earlier in alike(schemas, fold_name):
        yield Remark(category, None, f"almost the same name as category {beside(earlier, category)}")
    yield from _aliases(schemas)
    yield from _sharing(schemas)
    types: dict[str, dict[str, str]] = {}
    counts = Counter(attribute for schema in schemas.values() for attribute in schema.attributes)
    for category, schema in schemas.items():
        for text in (category, *schema.aliases):
            for message in lint_text(text):
                yield Remark(category, None, message)
        if len(schema.attributes) > _MAX_ATTRIBUTES:
            yield Remark(category, None, f"{len(schema.attributes)} attributes, more than {_MAX_ATTRIBUTES}")
        for name, earlier in alike((attribute.name for attribute in schema.attributes), fold_name):
            yield Remark(category, name, f"almost the same name as attribute {beside(earlier, name)}")
        for attribute in schema.attributes:
            # What categories share is looked at, and told, once.
            if more := counts.pop(attribute, 0):
                elsewhere = f" (as in {more - 1:,} more categories)" if more > 1 else ""
                for message in _lint_attribute(attribute):
                    yield Remark(category, attribute.name, f"{message}{elsewhere}")
            types.setdefault(attribute.name, {}).setdefault(attribute.type, category)
    for name, categories in types.items():
        if len(categories) > 1:
            described = ", ".join(f"{kind} in {category}" for kind, category in categories.items())
            yield Remark(next(iter(categories.values())), name, f"of different types: {described}")


def _sharing(schemas: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """Find names in `shares_text_with` that no exclusive attribute has, since nothing else checks them."""
    known = {attribute.name for schema in schemas.values() for attribute in schema.attributes if attribute.is_exclusive}
    for category, schema in schemas.items():
        for attribute in schema.attributes:
            for name in attribute.shares_text_with:
                if name not in known:
                    hint = NearNames(sorted(known)).hint(name)
                    told = f"shares its text with {name!r}, and no category has an exclusive attribute of that name"
                    yield Remark(category, attribute.name, f"{told}; {hint}" if hint else told)


def _aliases(schemas: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """Find ambiguous aliases: those that are also the name or an alias of another category."""
    owners: dict[str, str] = {category: category for category in schemas}
    for category, schema in schemas.items():
        for alias in schema.aliases:
            if (owner := owners.setdefault(alias, category)) != category:
                whose = f"also an alias of category {owner!r}" if alias != owner else "also the name of a category"
                yield Remark(category, None, f"its alias {alias!r} is {whose}")


def _lint_attribute(attribute: Attribute) -> Iterator[str]:
    for text in (attribute.name, *attribute.aliases):
        yield from lint_text(text)
    if (description := attribute.description) is not None:
        yield from ["its description is empty"] if is_blank(description) else lint_text(description)
    if len(description or "") > _MAX_DESCRIPTION:
        yield f"a description of {len(description or ''):,} letters makes every prompt long"
    if attribute.unit is not None:
        yield from lint_unit(attribute.unit, attribute)
    if attribute.type == "boolean" and attribute.multiple:
        yield "a list of truth values: without multiple?"
    if attribute.max_value_tokens == 1:
        yield "max_value_tokens is 1: most values have more tokens, and are cut"
    yield from lint_values(attribute)


_MAX_SHOWN = 20  # members of a vocabulary


def diff(old: Mapping[str, CategorySchema], new: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """Yield every difference between two schema files, including the order of attributes, but not of categories."""
    for category in dict.fromkeys([*old, *new]):
        if category not in new:
            yield Remark(category, None, "removed")
        elif category not in old:
            yield Remark(category, None, f"added, {len(new[category].attributes)} attributes")
        else:
            yield from _changes_of(category, old[category], new[category])


def _changes_of(category: str, old: CategorySchema, new: CategorySchema) -> Iterator[Remark]:
    for setting in ("id", "aliases"):
        if getattr(old, setting) != getattr(new, setting):
            yield Remark(category, None, _change(setting, getattr(old, setting), getattr(new, setting)))
    before = {attribute.name: attribute for attribute in old.attributes}
    after = {attribute.name: attribute for attribute in new.attributes}
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            yield Remark(category, name, "removed")
        elif name not in before:
            yield Remark(category, name, "added")
        else:
            for setting in Attribute.model_fields:
                first, second = getattr(before[name], setting), getattr(after[name], setting)
                if first != second:
                    yield Remark(category, name, _change(setting, first, second))
    if [name for name in before if name in after] != [name for name in after if name in before]:
        yield Remark(category, None, "attributes are in another order, so prompts and answers may differ")


def _change(setting: str, before: Any, after: Any) -> str:
    if setting == "values" and before and after and len(before) + len(after) > _MAX_SHOWN:
        return f"{setting}: {_change_of_many(before, after)}"
    return f"{setting}: {_show(before)} -> {_show(after)}"


def _change_of_many(before: Sequence[Member], after: Sequence[Member]) -> str:
    """Describe the members that a long vocabulary has lost and gained, at most `_MAX_SHOWN` of them."""
    lost = [f"-{_show(member)}" for member in _without(before, after)]
    new = [f"+{_show(member)}" for member in _without(after, before)]
    if not lost and not new:
        return "in another order"
    more = len(lost) + len(new) - _MAX_SHOWN
    shown = (lost + new)[:_MAX_SHOWN]
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _without(members: Sequence[Member], others: Sequence[Member]) -> list[Member]:
    known = set(others)
    return [member for member in members if member not in known]


def _show(setting: Any) -> str:
    if isinstance(setting, bool):
        return str(setting).lower()
    if setting is None or setting == ():
        return "not set"
    if isinstance(setting, tuple):
        return ", ".join(map(_show, setting))
    if isinstance(setting, Unit | Member):
        first, *rest = [(key, value) for key, value in setting if value not in (None, ())]
        more = "; ".join(f"{key} {_show(value)}" for key, value in rest)
        return f"{first[1]} ({more})" if more else str(first[1])
    return str(setting)


_LETTERS_PER_TOKEN = 4
_MAX_VALUE_TOKENS = 30  # as engine.max_value_tokens where nobody says otherwise
_TRUTH = ({"yes", "no"}, {"true", "false"})


def lint_values(attribute: Attribute) -> Iterator[str]:
    """Yield messages on the members of an enum."""
    members, labels = attribute.values or (), attribute.labels
    if len(labels) == 1:
        yield f"only one value is allowed, {labels[0]!r}: a boolean?"
    if {label.strip().casefold() for label in labels} in _TRUTH:
        yield f"the values are {' and '.join(map(repr, labels))}: a boolean?"
    synonyms = [synonym for member in members for synonym in member.synonyms]
    for texts in (labels, synonyms, [member.description or "" for member in members]):
        yield from first_ones(message for text in texts if text.strip() for message in lint_text(text))
    limit = attribute.max_value_tokens or _MAX_VALUE_TOKENS
    for messages in (
        (
            f"{label!r} is a value here, though it says nothing elsewhere: what is absent is null, always allowed"
            for label in labels
            if not is_blank(label) and absence.read(label, attribute.name) is absence.Reading.NOTHING
        ),
        (
            f"the value {label!r} holds a quote or a backslash, which models often write wrongly"
            for label in labels
            if '"' in label or "\\" in label
        ),
        (
            f"the value {label[:40]!r}… of {len(label)} letters may have more than {limit} tokens and be cut"
            for label in labels
            if len(label) > _LETTERS_PER_TOKEN * limit
        ),
        (
            f"the value {label!r} is almost the same as {beside(earlier, label)}: an answer may mean either"
            for label, earlier in alike(labels, fold_spelling)
        ),
        _doubtful_synonyms(members),
        _doubled_ids(members),
    ):
        yield from first_ones(messages)


def lint_unit(unit: Unit, attribute: Attribute) -> Iterator[str]:
    """Yield messages on a unit and on the units that texts may have instead."""
    for text in unit.names:
        yield from ["its unit is empty"] if is_blank(text) else lint_text(text)
        if meanings := meanings_of(text):
            shown = " or ".join(dict.fromkeys(each.shown for each in meanings))
            yield f"its unit {text!r} may be {shown}: nothing is converted to or from it; name the one that is meant"
    if attribute.type != "number":
        yield f"has the unit {unit.want!r} but is of type {attribute.type}"
    wanted = wanted_unit(unit.want)
    for name in unit.accept:
        accepted = wanted_unit(name)
        if meanings_of(name) or meanings_of(unit.want):
            continue
        if not is_known(accepted) or not is_known(wanted):
            unknown = name if not is_known(accepted) else unit.want
            yield f"accepts {name!r}, but nothing is known of the unit {unknown!r}: it is not converted"
        elif not same_kind(wanted, accepted):
            yield f"accepts {name!r}, which does not measure what {unit.want!r} does: it can never be converted"


def _doubtful_synonyms(members: Sequence[Member]) -> Iterator[str]:
    """Yield messages on synonyms that are empty, are labels of other members, or belong to several members."""
    labels = {member.label for member in members}
    owners: dict[str, dict[str, None]] = defaultdict(dict)
    for member in members:
        for synonym in member.synonyms:
            if not synonym.strip():
                yield f"a synonym of {member.label!r} is empty"
            elif synonym in labels and synonym != member.label:
                yield f"{synonym!r} is a synonym of {member.label!r} and a value itself: it means the value {synonym!r}"
            elif synonym not in labels:
                owners[synonym][member.label] = None
    for synonym, meant in owners.items():
        if len(meant) > 1:
            yield f"{synonym!r} is a synonym of {_named(meant)}: it means none of them"


def _doubled_ids(members: Iterable[Member]) -> Iterator[str]:
    owners: dict[str, list[str]] = defaultdict(list)
    for member in members:
        if member.id is not None:
            owners[member.id].append(member.label)
    for each, labels in owners.items():
        if len(labels) > 1:
            yield f"the id {each!r} is of several values, {_named(labels)}: by it they cannot be told apart"


def _named(labels: Iterable[str]) -> str:
    *others, last = map(repr, labels)
    return f"{', '.join(others)} and {last}"


_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_ALIKE = 5  # remarks on the values of one attribute that say the same of each


def lint_text(text: str) -> Iterator[str]:
    """Yield messages on invisible or unusual characters in a name, value, description or unit."""
    if not is_encodable(text):
        yield f"{text!r} holds half a surrogate pair, which is no text"
        return
    if is_blank(text):
        yield f"{text!r} shows nothing"
        return
    if text != text.strip():
        yield f"{text!r} begins or ends with white space"
    if _CONTROL_CHARACTER.search(text):
        yield f"{text!r} holds a line break or a control character"
    elif found := unseen(text):
        yield f"{text!r} holds characters that nobody sees: {', '.join(found)}"
    if unicodedata.normalize("NFC", text) != text:
        yield f"{text!r} is not in Unicode's form NFC, which most catalogs have"
    if html.unescape(text) != text:
        yield f"{text!r} holds an HTML entity: {html.unescape(text)!r}?"


def alike(texts: Iterable[str], fold: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield (text, earlier text) for every text that folds to the same as a different earlier one."""
    seen: dict[str, str] = {}
    for text in texts:
        earlier = seen.setdefault(fold(text), text)
        if earlier != text:
            yield text, earlier


def beside(earlier: str, text: str) -> str:
    """Return the earlier of two similar texts, with the difference between them."""
    return f"{earlier!r} (they differ in {difference(earlier, text)})"


def first_ones(messages: Iterable[str]) -> Iterator[str]:
    """Yield the first messages of one kind, and the number of further ones."""
    messages = iter(messages)
    yield from itertools.islice(messages, _MAX_ALIKE)
    if more := sum(1 for _ in messages):
        yield f"and {more:,} more of its values like this"
