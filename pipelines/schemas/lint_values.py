"""Lint of enum values and units: what is allowed but probably not meant."""

from __future__ import annotations

import html
import itertools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from hpd_core import Attribute, Member, Unit
from hpd_core.text import absence
from hpd_core.text.near_names import difference, fold_spelling, is_blank, unseen
from hpd_core.types import is_encodable
from pipelines.normalising.units import is_known, meanings_of, same_kind, wanted_unit

_MAX_VALUE_TOKENS = 30  # as engine.max_value_tokens where nobody says otherwise
_LETTERS_PER_TOKEN = 4  # about; a value of more letters may be cut
_TRUTH = ({"yes", "no"}, {"true", "false"})


def lint_values(attribute: Attribute) -> Iterator[str]:
    """Yield messages on the members of an enum."""
    members, labels = attribute.values or (), attribute.labels
    if len(labels) == 1:
        yield f"only one value is allowed, {labels[0]!r}: a boolean?"
    if {label.strip().casefold() for label in labels} in _TRUTH:
        yield f"the values are {' and '.join(map(repr, labels))}: a boolean?"
    for texts in (labels, _synonyms(members), (member.description or "" for member in members)):
        yield from first_ones(message for text in texts if text.strip() for message in lint_text(text))
    for messages in (
        _says_nothing(labels, attribute),
        _hard_to_write(labels),
        _long(labels, attribute.max_value_tokens or _MAX_VALUE_TOKENS),
        _alike(labels),
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


def _synonyms(members: Iterable[Member]) -> Iterator[str]:
    return (synonym for member in members for synonym in member.synonyms)


def _says_nothing(labels: Iterable[str], attribute: Attribute) -> Iterator[str]:
    for label in labels:
        if not is_blank(label) and absence.read(label, attribute.name) is absence.Reading.NOTHING:
            yield f"{label!r} is a value here, though it says nothing elsewhere: what is absent is null, always allowed"


def _hard_to_write(labels: Iterable[str]) -> Iterator[str]:
    for label in labels:
        if '"' in label or "\\" in label:
            yield f"the value {label!r} holds a quote or a backslash, which models often write wrongly"


def _long(labels: Iterable[str], limit: int) -> Iterator[str]:
    for label in labels:
        if len(label) > _LETTERS_PER_TOKEN * limit:
            yield f"the value {label[:40]!r}… of {len(label)} letters may have more than {limit} tokens and be cut"


def _alike(labels: Iterable[str]) -> Iterator[str]:
    for label, earlier in alike(labels, fold_spelling):
        yield f"the value {label!r} is almost the same as {beside(earlier, label)}: an answer may mean either"


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
