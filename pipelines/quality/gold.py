"""Gold files: what the right answers are.

JSON Lines, one product a line. Two layouts, told apart line by line:

- ours: `{"product_id": "B01", "category": "Coffee", "values": {"Brand": ["Acme"], "Roast": null,
  "Origin": [["Colombia"], ["Brazil", "Brasil"]]}}`. Null: the product has no such value. A list of texts: the
  accepted forms of one value. A list of lists: several values, the accepted forms of each;
- ExtractGPT's: `{"input": "...", "category": "Shoes", "target_scores": {"Brand": {"Acme": 1}}}`. The keys are
  the accepted forms; "n/a" as the first of them: absent. Such a line has no id, it belongs to the
  row of the same number in the catalog (the job is run on the gold file itself).

An attribute that a line does not name is not labelled. That is not the same as absent: nobody looked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpd_core.types import is_encodable
from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem

# What ExtractGPT's data and scoring read as "no value".
ABSENT_WORDS = frozenset({"n/a", "None"})
# What people and models write where they mean the same, folded (scoring.fold).
WORDS_BEHIND_NOT = ("specified", "stated", "mentioned", "given", "provided", "known", "found", "listed", "available")
WORDS_FOR_NOTHING = frozenset(
    {"n/a", "na", "none", "null", "nil", "unknown", "unspecified", "no information", "none specified", "none mentioned"}
    | {f"not {word}" for word in (*WORDS_BEHIND_NOT, "applicable")}
)


@dataclass(frozen=True, slots=True)
class GoldValue:
    """The right answer for one attribute of one product.

    `items` holds the accepted forms of every value: one member for a single value, several for an attribute
    with several values, none if the product has no such value.
    """

    items: tuple[tuple[str, ...], ...]

    @property
    def is_absent(self) -> bool:
        """Whether somebody looked and found that the product has no such value."""
        return not self.items

    def __str__(self) -> str:
        return "; ".join(" | ".join(forms) for forms in self.items) if self.items else "(absent)"


@dataclass(frozen=True, slots=True)
class GoldProduct:
    """One line of a gold file.

    Attributes:
        row: 0-based line number in the file.
        product_id: None in ExtractGPT's layout; such a product is matched by `row`.
        values: the labelled attributes only.
        fields: the product's own text, field name -> text, where the line holds it (`"input": {...}`); what
            pipelines/label.py writes does.
    """

    row: int
    product_id: str | None
    category: str
    values: Mapping[str, GoldValue]
    fields: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """How messages call this product."""
        return self.product_id if self.product_id is not None else f"row {self.row}"

    def place_in(self, path: str) -> str:
        """Where a person finds it in the gold file at `path`."""
        return _place(path, self.row)


def read_gold(path: str) -> list[GoldProduct]:
    """The products of the gold file at `path` (local or any fsspec URI), in the file's order.

    Raises `UsageError`, naming file, line and key, on anything that is not exactly one of the two layouts.
    """
    return parse_gold(read_lines(path), path)


def parse_gold(lines: Sequence[bytes], path: str) -> list[GoldProduct]:
    """As `read_gold`, of lines that were read."""
    products = [
        _parse_line(line, row, _place(path, row))
        for row, line in enumerate(lines)
        if line.strip()  # a blank line keeps its number but is no product, as in a catalog
    ]
    if not products:
        raise UsageError(f"{path}: the gold file is empty")
    _refuse_doubled_ids(products, path)
    return products


def read_lines(path: str) -> list[bytes]:
    """The file's lines as they are, blank ones too: `GoldProduct.row` counts them. Raises `UsageError`."""
    try:
        filesystem, inner = open_filesystem(path)
        content: bytes = filesystem.cat_file(inner)
        return content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except FileNotFoundError as error:
        raise UsageError(f"no such gold file: {path}") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder, a gold file is needed") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _parse_line(line: bytes, row: int, place: str) -> GoldProduct:
    try:
        entry = json.loads(line.decode("utf-8"), object_pairs_hook=_unique_keys)
    except UnicodeDecodeError as error:
        raise UsageError(f"{place}: not UTF-8 text: {error.reason} at byte {error.start} of the line") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: not JSON: {error}") from error
    if not isinstance(entry, dict):
        raise UsageError(f"{place}: a JSON object is needed, not {_kind(entry)}")
    category = _text(entry, "category", place)
    if "target_scores" in entry and "values" in entry:
        raise UsageError(f"{place}: has both 'values' (our layout) and 'target_scores' (ExtractGPT's)")
    if "target_scores" in entry:
        scores = _mapping(entry, "target_scores", place)
        return GoldProduct(
            row,
            None,
            category,
            {name: _from_scores(forms, _key(place, "target_scores", name)) for name, forms in scores.items()},
        )
    if "values" in entry:
        values = _mapping(entry, "values", place)
        return GoldProduct(
            row,
            _text(entry, "product_id", place),
            category,
            {name: _from_forms(forms, _key(place, "values", name)) for name, forms in values.items()},
            _fields(entry, place),
        )
    raise UsageError(f"{place}: neither 'values' (our layout) nor 'target_scores' (ExtractGPT's)")


def _fields(entry: Mapping[str, Any], place: str) -> Mapping[str, str] | None:
    if "input" not in entry:
        return None
    fields = _mapping(entry, "input", place)
    for name, text in fields.items():
        if not isinstance(text, str):
            raise UsageError(f"{_key(place, 'input', name)}: text is needed, not {_kind(text)}")
        if not is_encodable(text):
            raise UsageError(f"{_key(place, 'input', name)}: holds half a surrogate pair, which is no text")
    return fields


def _from_scores(scores: Any, place: str) -> GoldValue:
    """ExtractGPT's rule: the first key alone decides whether the value is absent."""
    if not isinstance(scores, dict) or not scores:
        raise UsageError(f'{place}: a non-empty object {{"<accepted form>": 1}} is needed')
    for form, score in scores.items():
        if score != 1:
            raise UsageError(f"{place}: the score of {form!r} is {score!r}, only 1 is known")
        if not form.strip():
            raise UsageError(f"{place}: an accepted form is empty")
        if not is_encodable(form):
            raise UsageError(f"{place}: an accepted form holds half a surrogate pair, which is no text")
    forms = list(scores)
    if forms[0] == "n/a":
        return GoldValue(())
    return GoldValue((tuple(form.strip() for form in forms if form != "n/a"),))


def _from_forms(forms: Any, place: str) -> GoldValue:
    if forms is None:
        return GoldValue(())
    if not isinstance(forms, list) or not forms:
        raise UsageError(
            f"{place}: null (absent), a non-empty list of accepted forms, or a list of such lists is needed"
        )
    if all(isinstance(form, str) for form in forms):
        return GoldValue((_accepted(forms, place),))
    if all(isinstance(item, list) for item in forms):
        return GoldValue(tuple(_accepted(item, f"{place}, item {index}") for index, item in enumerate(forms)))
    raise UsageError(f"{place}: texts and lists are mixed; give either forms of one value or one list per value")


def _accepted(forms: list[Any], place: str) -> tuple[str, ...]:
    if not forms:
        raise UsageError(f"{place}: the list of accepted forms is empty")
    for form in forms:
        if not isinstance(form, str):
            raise UsageError(f"{place}: an accepted form must be text, not {_kind(form)}: {form!r}")
        if not is_encodable(form):
            raise UsageError(f"{place}: an accepted form holds half a surrogate pair, which is no text")
        if not form.strip():
            raise UsageError(f"{place}: an accepted form is empty")
        if form.strip() in ABSENT_WORDS:
            raise UsageError(f"{place}: {form!r} never counts as a value; write null for an absent one")
    return tuple(form.strip() for form in forms)


def _place(path: str, row: int) -> str:
    return f"{path}, line {row + 1}"


def _refuse_doubled_ids(products: list[GoldProduct], path: str) -> None:
    rows: dict[str, int] = {}
    for product in products:
        if product.product_id is None:
            continue
        if product.product_id in rows:
            first = rows[product.product_id] + 1
            raise UsageError(
                f"{product.place_in(path)}: product_id {product.product_id!r} stands in line {first} already"
            )
        rows[product.product_id] = product.row


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # json keeps the last of two equal keys without a word: a label would be lost.
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        doubled = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {doubled!r} is written twice")
    return result


def _text(entry: Mapping[str, Any], key: str, place: str) -> str:
    value = entry.get(key)
    if key not in entry:
        raise UsageError(f"{place}: key {key!r} is missing")
    if not isinstance(value, str) or not value:
        raise UsageError(f"{place}: {key!r} must be a non-empty text, not {_kind(value)}")
    if not is_encodable(value):
        raise UsageError(f"{place}: {key!r}: holds half a surrogate pair, which is no text")
    return value


def _mapping(entry: Mapping[str, Any], key: str, place: str) -> dict[str, Any]:
    value = entry[key]
    if not isinstance(value, dict):
        raise UsageError(f"{place}: {key!r} must be an object, not {_kind(value)}")
    return value


def _key(place: str, *path: str) -> str:
    return f"{place}: {' > '.join(repr(part) for part in path)}"


def _kind(value: Any) -> str:
    if value == "":
        return "an empty text"
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
