"""From what a teacher wrote to labels: read leniently, judged strictly, every problem counted by its kind.

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
from typing import Any

from hpd_core import Attribute, CategorySchema, Value
from hpd_core.text.grounding import Grounder
from hpd_core.text.values import parse_value
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
_THOUGHTS = re.compile(r"\A.*</think>", re.DOTALL)
_MAX_CANDIDATES = 100  # places where an object may begin, so that an answer full of braces costs no minutes


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


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys were written twice; the first of them counts."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(reversed(pairs))
        self.num_doubled = len(pairs) - len(self)


# Numbers stay as they were written: 1.50 is not 1.5.
_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_float=str, parse_int=str, parse_constant=str, strict=False)


def read_answer(schema: CategorySchema, text: str) -> tuple[dict[str, Value], Counter[str]] | None:
    """The values in a teacher's answer, by attribute, and what was wrong with its keys. None: it holds no JSON object.

    Fences, thoughts and words around the object are skipped. A key that is equal to one attribute's name but for
    case and punctuation counts as that attribute.
    """
    answer = _find_object(schema, text)
    if answer is None:
        return None
    values: dict[str, Value] = {}
    problems = Counter({"doubled_key": answer.num_doubled})
    attributes = {attribute.name: attribute for attribute in schema.attributes}
    spelled = _unique_spellings(attributes)
    # Keys that are right to the letter come first: a misspelled one never takes their place.
    for key in sorted(answer, key=lambda key: key not in attributes):
        name = key if key in attributes else spelled.get(_spelling(key))
        if name is None or name in values:
            problems["unknown_key"] += 1
            continue
        problems["misspelled_key"] += name != key
        values[name] = parse_value(attributes[name], json.dumps(answer[key]), closed=True)
    problems["missing_key"] = len(attributes) - len(values)
    return values, +problems


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


def _find_object(schema: CategorySchema, text: str) -> _Object | None:
    """The object in `text` that has the most of the schema's keys; the first of several."""
    text = _THOUGHTS.sub("", text)
    names = {_spelling(attribute.name) for attribute in schema.attributes}
    best: tuple[int, _Object] | None = None
    start = text.find("{")
    for _ in range(_MAX_CANDIDATES):
        if start < 0:
            break
        end = start + 1
        try:
            candidate, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            pass
        else:
            known = _count_known(candidate, names)
            while not known and len(candidate) == 1 and isinstance(inner := next(iter(candidate.values())), _Object):
                candidate, known = inner, _count_known(inner, names)  # {"product": {...}}
            if best is None or known > best[0]:
                best = known, candidate
        start = text.find("{", end)
    return best[1] if best is not None else None


def _count_known(candidate: _Object, names: set[str]) -> int:
    return sum(_spelling(key) in names for key in candidate)


def _unique_spellings(attributes: Mapping[str, Attribute]) -> dict[str, str]:
    counts = Counter(_spelling(name) for name in attributes)
    return {_spelling(name): name for name in attributes if counts[_spelling(name)] == 1}


def _spelling(key: str) -> str:
    return " ".join(re.split(r"[\W_]+", key.casefold())).strip()
