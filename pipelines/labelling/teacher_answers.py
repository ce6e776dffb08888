"""From a teacher's values to labels: judged strictly, every problem counted by its kind.

A value is judged by the student's own rule (`hpd_core.text.values`), so a label is something the student can be right
about. What cannot be used is left out of the labels: not labelled is not the same as absent.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto

from hpd_core import Attribute, CategorySchema, Value
from hpd_core.text.grounding import Grounder
from pipelines.quality.gold import ABSENT_WORDS, WORDS_BEHIND_NOT, WORDS_FOR_NOTHING
from pipelines.quality.scoring import fold, words_pattern

# None: looked, and absent. A list of texts: the forms of one value. A list of lists: several values.
GoldForms = list[str] | list[list[str]] | None

# What says "nothing" wherever it stands.
_SIGNS = "-–—?_/"
_PLACEHOLDERS = ABSENT_WORDS | {"", *_SIGNS}
_NOTHING = re.compile(rf"(?:not|none) (?:{'|'.join(WORDS_BEHIND_NOT)})\b.{{0,40}}")
# Of the words for "nothing" those that are names elsewhere: a game, sodium or North America, a brand.
_NAMES = frozenset({"unknown", "na", "nil"})


@dataclass(frozen=True, slots=True)
class Labels:
    """The usable labels of one product.

    Attributes:
        values: by attribute, in the schema's order; without those that are not labelled.
        problems: what was wrong with the answer, by kind.
        not_in_text: attributes with a value that does not stand in the product text.
    """

    values: dict[str, GoldForms]
    problems: Counter[str]
    not_in_text: tuple[str, ...]


def judge(
    schema: CategorySchema, values: Mapping[str, Value], fields: Mapping[str, str], *, require_evidence: bool
) -> Labels:
    """The labels among a product's answers; `values` may lack attributes, they are not labelled then."""
    problems: Counter[str] = Counter()
    labels: dict[str, GoldForms] = {}
    not_in_text: list[str] = []
    document = _Document(fields)
    words = Counter(
        word
        for attribute in schema.attributes
        if attribute.type == "string" and (value := values.get(attribute.name)) is not None
        for word in {_word(attribute, item) for item in value.items}
    )
    for attribute in schema.attributes:
        value = values.get(attribute.name)
        if value is None:
            continue
        if value.status not in ("value", "absent"):
            problems[_problem(attribute, value)] += 1
            continue
        readings = [document.read(attribute, item, words) for item in value.items]
        items = [
            _as_json(attribute, item)
            for item, reading in zip(value.items, readings, strict=True)
            if reading is _Reading.VALUE
        ]
        problems["placeholder"] += len(value.items) - len(items)
        if _Reading.UNCLEAR in readings:
            continue
        if not all(document.holds(attribute, item) for item in items):
            problems["not_in_text"] += 1
            not_in_text.append(attribute.name)
            if require_evidence:
                continue
        labels[attribute.name] = ([[item] for item in items] if attribute.multiple else items) or None
    return Labels(labels, +problems, tuple(not_in_text))


class _Reading(Enum):
    """What an item says: a value, that there is none, or one of the two."""

    VALUE = auto()
    NOTHING = auto()
    UNCLEAR = auto()


class _Document:
    """The product text, made ready for looking values up in it."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._text = "\n".join(fields.values())
        self._folded = fold(self._text)
        self._grounder = Grounder(fields)

    def read(self, attribute: Attribute, item: str, words: Mapping[str, int]) -> _Reading:
        """Words for "nothing" are no values, but for a name that the text spells so; `words`: how many answers say it.

        A teacher that says "NA" of two attributes means nothing, and so does a text with "Brand: NA". An "NA" that does
        not stand in the text, or in other capitals, may be one or the other.
        """
        if item.strip() in _PLACEHOLDERS:
            return _Reading.NOTHING
        if attribute.type != "string":
            return _Reading.VALUE
        word, name = _word(attribute, item), item.strip().rstrip(".")
        if word not in _NAMES:
            is_nothing = word in WORDS_FOR_NOTHING or not word or _NOTHING.fullmatch(word)
            return _Reading.NOTHING if is_nothing else _Reading.VALUE
        # For every place where the text has it: whether behind a label.
        labelled = [
            self._text[: found.start()].rstrip().endswith((":", "="))
            for found in words_pattern([name]).finditer(self._text)
        ]
        if words[word] > 1 or name.islower() or any(labelled):
            return _Reading.NOTHING
        if labelled:
            return _Reading.VALUE
        is_elsewhere = words_pattern([fold(name)]).search(self._folded)
        return _Reading.UNCLEAR if is_elsewhere or word != "unknown" else _Reading.NOTHING

    def holds(self, attribute: Attribute, item: str) -> bool:
        """Whether the item stands in the text. Enums and truth values are conclusions: they need not.

        A text may stand inside of a word, other than for evidence: "Leder" in "Lederjacke" is no hallucination.
        """
        if attribute.type == "number":
            return bool(self._grounder.find(attribute, item.removeprefix("-")))
        return attribute.type != "string" or fold(item) in self._folded


def _word(attribute: Attribute, item: str) -> str:
    """Folded, "N.A." as "na", "Unknown brand" as "unknown", "--" as nothing."""
    word = fold(item.replace(".", "")).strip(f"{_SIGNS} ")
    return word.removesuffix(f" {fold(attribute.name)}") if word.startswith("unknown ") else word


def _problem(attribute: Attribute, value: Value) -> str:
    if value.status == "invalid" and value.raw:
        is_text = value.raw.startswith(("[", '"') if attribute.multiple else '"')
        return "not_in_enum" if attribute.type == "enum" and is_text else "wrong_type"
    return value.status


def _as_json(attribute: Attribute, item: str) -> str:
    """A number such as ".5" or "007" as JSON writes it: the student is trained on JSON."""
    if attribute.type != "number":
        return item
    try:
        json.loads(item)
    except ValueError:
        return format(Decimal(item), "f")
    return item
