"""Conversion of a teacher's values to labels: strict judgement, every problem counted by its kind.

A value is judged by the student's own rule (`hpd_core.text.values`), so that the student can reproduce every label.
Unusable values are left out of the labels, because not labelled differs from absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hpd_core import Attribute, CategorySchema, Value
from hpd_core.text import absence
from hpd_core.text.grounding import Grounder
from hpd_core.text.numbers import is_undecided
from hpd_core.text.values import words_for_nothing
from pipelines.quality.scoring import fold

# None: looked, and absent. A list of texts: the forms of one value. A list of lists: several values.
GoldForms = list[str] | list[list[str]] | None


@dataclass(frozen=True, slots=True)
class Labels:
    """The usable labels of one product.

    Attributes:
        values: labels by attribute, in the schema's order; only labelled ones.
        problems: number of problems of the answer, by kind.
        not_in_text: attributes with a value that does not stand in the product text.
    """

    values: dict[str, GoldForms]
    problems: Counter[str]
    not_in_text: tuple[str, ...]


def judge(
    schema: CategorySchema, values: Mapping[str, Value], fields: Mapping[str, str], *, require_evidence: bool
) -> Labels:
    """Return the usable labels of a product's answers. Attributes missing from `values` are not labelled."""
    problems: Counter[str] = Counter()
    labels: dict[str, GoldForms] = {}
    not_in_text: list[str] = []
    document = _Document(fields)
    said = _names_said(schema, values)
    for attribute in schema.attributes:
        value = values.get(attribute.name)
        if value is None:
            continue
        if value.status not in ("value", "absent"):
            problems[_problem(attribute, value)] += 1
            continue
        # A teacher that says "NA" of two attributes means nothing by it, whatever the text has.
        items = [item for item in value.items if not attribute.is_text or said[absence.fold(item)] < 2]
        words = words_for_nothing(attribute, value.raw, fields)
        problems["placeholder"] += len(words) + len(value.items) - len(items)
        if any(absence.read(word, attribute.name, fields) is absence.Reading.UNCLEAR for word in words):
            continue
        standings = {document.standing(attribute, item) for item in items}
        for standing in standings - {"in_text"}:
            problems[standing] += 1
        if "not_in_text" in standings:
            not_in_text.append(attribute.name)
        is_open = attribute.type == "number" and any(map(is_undecided, items))
        if is_open or (require_evidence and standings - {"in_text"}):
            continue
        labels[attribute.name] = ([[item] for item in items] if attribute.multiple else items) or None
    return Labels(labels, +problems, tuple(not_in_text))


def _names_said(schema: CategorySchema, values: Mapping[str, Value]) -> Counter[str]:
    """Count the attributes that have each word that is a name here and a word for nothing elsewhere."""
    return Counter(
        word
        for attribute in schema.attributes
        if attribute.is_text and (value := values.get(attribute.name)) is not None
        for word in {
            absence.fold(item)
            for item in value.items
            if absence.read(item, attribute.name) is not absence.Reading.VALUE
        }
    )


class _Document:
    """The product text, prepared for looking up values."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._text = "\n".join(fields.values())
        self._folded = fold(self._text)
        self._grounder = Grounder(fields)

    def standing(self, attribute: Attribute, item: str) -> Literal["in_text", "ambiguous_number", "not_in_text"]:
        """Return whether the item stands in the text. Enums and truth values are conclusions and need not stand there.

        A text may stand inside a word, unlike evidence: "Leder" in "Lederjacke" is not a hallucination.
        """
        if attribute.type == "number":
            places = self._grounder.find(attribute, item)
            if places and places[0].match == "ambiguous":
                return "ambiguous_number"
            return "in_text" if places else "not_in_text"
        return "in_text" if not attribute.is_text or fold(item) in self._folded else "not_in_text"


def _problem(attribute: Attribute, value: Value) -> str:
    if value.status == "invalid" and value.raw:
        is_text = value.raw.startswith(("[", '"') if attribute.multiple else '"')
        return "not_in_enum" if attribute.type == "enum" and is_text else "wrong_type"
    return value.status
