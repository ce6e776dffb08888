"""Forms in which values are written for a shop, and rules for the values that a column takes."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, NamedTuple

from pipelines.exporting.answers import ExportedItem
from pipelines.normalising.member_names import name_and_signs

Form = Literal[
    "text",
    "choice",
    "number",
    "measure",
    "quantity",
    "gtin",
    "yes_no",
    "one_zero",
    "true_false",
    "option",
    "handle",
    "shopify_measure",
]


class Filled(NamedTuple):
    """Values for a cell, each by itself, or the reason for leaving it empty."""

    values: Sequence[str]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for the values that a column of a target takes.

    Attributes:
        form: form in which a value is written.
        max_length: most characters of the whole cell; None without a limit.
        max_item: most characters of one value.
        max_bytes: most bytes of one value, as UTF-8.
        max_items: most values in a cell.
        joint: separator between them.
        choices: the only values; for "measure" the units; for "handle" the labels that Shopify's taxonomy has.
        least, most: bounds of a number.
        pattern: regular expression that every value must match, whole.
        refused: words that are not allowed as values, in small letters.
        unclear: written values that several members of the vocabulary would share.
    """

    form: Form = "text"
    max_length: int | None = None
    max_item: int | None = None
    max_bytes: int | None = None
    max_items: int = 1
    joint: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    pattern: str | None = None
    refused: tuple[str, ...] = ()
    unclear: frozenset[str] = field(default=frozenset(), compare=False)

    def fill(self, items: Sequence[ExportedItem]) -> Filled:
        """Return the items as the target wants them: all or none, because a part of a list would be another answer."""
        values: dict[str, ExportedItem] = {}
        for item in items:
            value, reason = self._written(item)
            if reason is None and not self._is_same(item, values.setdefault(value, item)):
                reason = f"several of its values would be {value!r} there"
            if reason is not None:
                return Filled((), reason)
        if len(values) > self.max_items:
            return Filled((), f"{len(values)} values, {self.max_items} at most")
        if self.max_length is not None and len(self.joint.join(values)) > self.max_length:
            return Filled((), f"longer than {self.max_length:,} characters")
        return Filled(tuple(values))

    def cell(self, filled: Filled) -> str:
        """Return the values as one text."""
        return self.joint.join(filled.values)

    def _is_same(self, item: ExportedItem, other: ExportedItem) -> bool:
        """Return whether two items written alike mean the same: "C" and "C++" do not, nor do 5 kg and 5 cm."""
        if item == other or self.form == "gtin":
            return True
        return item.unit == other.unit and name_and_signs(item.text) == name_and_signs(other.text)

    def _written(self, item: ExportedItem) -> tuple[str, str | None]:
        value, reason = _FORMS[self.form](item, self)
        if reason is None and self.max_item is not None and len(value) > self.max_item:
            reason = f"longer than {self.max_item:,} characters"
        if reason is None and self.max_bytes is not None and len(value.encode()) > self.max_bytes:
            reason = f"longer than {self.max_bytes:,} bytes"
        if reason is None and self.joint.strip() and self.joint.strip() in value:
            reason = f"holds {self.joint.strip()!r}, which separates values there"
        if reason is None and value.casefold() in self.refused:
            reason = f"{value!r} is no value there"
        if reason is None and value in self.unclear:
            reason = f"several values of the schema would be {value!r} there"
        if reason is None and self.pattern is not None and not re.fullmatch(self.pattern, value):
            reason = "not of the form that is wanted"
        return value, reason


Written = tuple[str, str | None]

_RESTRICTED_GTINS = ("02", "04", "05", "2", "98", "99")
"""Prefixes of 13-digit GTINs that are not given to makers."""
_DECIMAL = re.compile(r"-?\d+(\.\d+)?")
SPELLINGS = {
    "inch": "in",
    "inches": "in",
    '"': "in",
    "centimeter": "cm",
    "centimetre": "cm",
    "gram": "g",
    "kilogram": "kg",
    "pound": "lb",
    "lbs": "lb",
    "ounce": "oz",
}
_LETTERS = str.maketrans(
    {
        **{"ß": "ss", "ø": "o", "ł": "l", "æ": "ae", "œ": "oe", "đ": "d", "ð": "d", "þ": "th", "ı": "i"},
        **{"ħ": "h", "ŧ": "t", "ŋ": "ng", "ĸ": "k", "ə": "e"},
    }
)
"""Latin letters that Unicode does not decompose, because they are not another letter with a mark."""
_GENDERS = {
    **dict.fromkeys(("men", "man", "mens", "men's", "boys", "boy", "herren", "hommes", "hombre", "uomo"), "male"),
    **dict.fromkeys(("women", "woman", "womens", "women's", "ladies", "girls", "girl", "damen", "femmes"), "female"),
}
"""Words for a gender -> the value that Google and Shopify take."""
_LARGER = {"g": ("kg", 1000), "oz": ("lb", 16)}
"""Unit -> the next larger unit, and how many of the first it is."""


def _text(item: ExportedItem, rule: Rule) -> Written:
    return " ".join(item.text.split()), None


def _choice(item: ExportedItem, rule: Rule) -> Written:
    folded = item.text.strip().casefold()
    folded = _GENDERS.get(folded, folded)
    for choice in rule.choices:
        if choice.casefold() == folded:
            return choice, None
    return "", f"none of {', '.join(rule.choices)}"


def _number(item: ExportedItem, rule: Rule) -> Written:
    if not _DECIMAL.fullmatch(item.text):
        return "", "not one number"
    number = float(item.text)
    if (rule.least is not None and number < rule.least) or (rule.most is not None and number > rule.most):
        return "", f"not from {rule.least:g} to {rule.most:g}"
    return item.text, None


def _measure(item: ExportedItem, rule: Rule) -> Written:
    number, reason = _number(item, rule)
    unit = SPELLINGS.get((item.unit or "").casefold(), item.unit or "")
    larger, count = _LARGER.get(unit, ("", 1))
    if reason is not None and larger in rule.choices and _DECIMAL.fullmatch(item.text):
        # A number above the bounds is written in the larger unit: 2600 g are 2.6 kg.
        fewer = f"{Decimal(item.text) / count:f}"
        (number, reason), unit = _number(item._replace(text=fewer), rule), larger
    if reason is None and unit not in rule.choices:
        reason = f"in {unit or 'no unit'}, and {', '.join(rule.choices)} are taken"
    return f"{number} {unit}", reason


def _quantity(item: ExportedItem, rule: Rule) -> Written:
    return f"{item.text} {item.unit or ''}".strip(), None


def _gtin(item: ExportedItem, rule: Rule) -> Written:
    digits = re.sub(r"[\s-]", "", item.text)
    if not re.fullmatch(r"\d{8}|\d{12,14}", digits, re.ASCII):
        return "", "no number of 8, 12, 13 or 14 digits"
    weighed = sum(int(digit) * (3, 1)[place % 2] for place, digit in enumerate(reversed(digits[:-1])))
    if (weighed + int(digits[-1])) % 10:
        return "", "its check digit is wrong"
    if len(digits) > 8 and digits[-13:].rjust(13, "0").startswith(_RESTRICTED_GTINS):
        return "", "of a range for coupons or for a shop's own use"
    return digits, None


def _boolean(item: ExportedItem, yes: str, no: str) -> Written:
    said = {"true": yes, "false": no}.get(item.text)
    return said or "", None if said else "neither true nor false"


def _option(item: ExportedItem, rule: Rule) -> Written:
    return item.id or "", None if item.id else "no option code in the schema"


def _handle(item: ExportedItem, rule: Rule) -> Written:
    if item.text not in rule.choices:
        return "", "no value of Shopify's taxonomy: the schema has no id of it"
    handle = slug(item.text, "-")
    return handle, None if handle and is_sluggable(item.text) else "no handle can be made of it"


def _shopify_measure(item: ExportedItem, rule: Rule) -> Written:
    number, reason = _number(item, rule)
    if reason is None and not item.unit:
        reason = "in no unit"
    if reason is not None:
        return "", reason
    unit = json.dumps({"unit": SPELLINGS.get(item.unit or "", item.unit)})
    # The number has all of its digits: a double would not.
    return f'{{"value": {Decimal(number):f}, {unit[1:]}', None


_FORMS = {
    "text": _text,
    "choice": _choice,
    "number": _number,
    "measure": _measure,
    "quantity": _quantity,
    "gtin": _gtin,
    "yes_no": lambda item, rule: _boolean(item, "yes", "no"),
    "one_zero": lambda item, rule: _boolean(item, "1", "0"),
    "true_false": lambda item, rule: _boolean(item, "true", "false"),
    "option": _option,
    "handle": _handle,
    "shopify_measure": _shopify_measure,
}


def slug(text: str, between: str) -> str:
    """Return the text in lower case, with `between` for all but ASCII letters and digits; empty if it has none."""
    plain = _latin(text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", between, plain).strip(between)


def is_sluggable(text: str) -> bool:
    """Return whether `slug` keeps all letters and digits: without some of them a name may equal another."""
    return not any(each.isalnum() and not each.isascii() for each in _latin(text))


def _latin(text: str) -> str:
    """Return the text in small letters, Latin ones as ASCII without accents."""
    # Decomposition may give capitals ("™").
    return unicodedata.normalize("NFKD", text.lower()).translate(_LETTERS).lower()
