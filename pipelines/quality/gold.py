"""Gold files: the right answers.

JSON Lines, one product a line. Three layouts, told apart line by line:

- ours: `{"product_id": "B01", "category": "Coffee", "values": {"Brand": ["Acme"], "Roast": null,
  "Origin": [["Colombia"], ["Brazil", "Brasil"]]}}`. Null: the product has no such value. A list of texts: the
  accepted forms of one value. A list of lists: several values, the accepted forms of each;
- ExtractGPT's: `{"input": "...", "category": "Shoes", "target_scores": {"Brand": {"Acme": 1}}}`. The keys are
  the accepted forms; a word for nothing ("n/a") as the first key: absent. In place of the 1, WDC PAVE gives the
  position of the form: `{"Acme": {"pid": [0, 1], "score": 1}}` or `{"Acme": [[0, 4]]}`, also read in `values`. Such
  a line has no id. It belongs to the row of the same number in the catalog (the job runs on the gold file itself);
- MAVE's: `{"id": "B01", "category": "Shoes", "paragraphs": [{"text": "...", "source": "title"}], "attributes":
  [{"key": "Brand", "evidences": [{"value": "Acme", "pid": 0, "begin": 0, "end": 4}]}]}`. The values of an attribute
  are its accepted forms; no evidence: absent.

An attribute that a line does not name is not labelled. That differs from absent, because nobody looked. A line may also
name it by its id or an alias (gold_objects.py). Labels under several of its names are merged if they agree. If they
contradict each other, they are dropped with a warning. A line with `"review": {"corrected": ["Brand"]}` comes from
people who reviewed a model's answers (`hpd review --gold`), and only the attributes that it names.

Words for nothing are not values (hpd_core/text/absence.py). Exceptions: members of an enum in the schemas that the
file is read with, and names that the line's own text spells that way.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpd_core import CategorySchema
from hpd_core.plain_data import Place, dotted
from hpd_core.text import absence
from hpd_core.types import is_encodable
from pipelines.errors import UsageError
from pipelines.quality.gold_objects import GoldNames, by_place, refuse_blank
from pipelines.store.folders import open_filesystem

Schemas = Mapping[str, CategorySchema]

_SHAPES = (
    'ours is {"product_id": "p1", "category": "Coffee", "values": {"Brand": ["Acme"], "Roast": null}}, ExtractGPT\'s '
    '{"category": "Coffee", "target_scores": {"Brand": {"Acme": 1}}}, MAVE\'s {"id": "p1", "category": "Coffee", '
    '"attributes": [{"key": "Brand", "evidences": [{"value": "Acme"}]}]}'
)
_MAX_DIGITS = 40
logger = logging.getLogger(__name__)
_FORMS_SHAPE = '{"<accepted form>": 1} or {"<accepted form>": [<positions>]}'


@dataclass(frozen=True, slots=True)
class GoldValue:
    """The right answer for one attribute of one product.

    `items` holds the accepted forms of every value. It has one member for a single value, several for several
    values, and none if the product has no such value.
    """

    items: tuple[tuple[str, ...], ...]

    @property
    def is_absent(self) -> bool:
        """Whether somebody looked and found that the product has no such value."""
        return not self.items

    def dotted(self, other: GoldValue) -> GoldValue | None:
        """Merge two labels of one attribute, with the forms that either accepts; None if they contradict each other."""
        if len(self.items) != len(other.items):
            return None
        pairs = list(zip(sorted(self.items), sorted(other.items), strict=True))
        if not all({form.casefold() for form in one} & {form.casefold() for form in two} for one, two in pairs):
            return None
        return (
            self
            if self.items == other.items
            else GoldValue(tuple(tuple(dict.fromkeys(one + two)) for one, two in pairs))
        )

    def __str__(self) -> str:
        return "; ".join(" | ".join(forms) for forms in self.items) if self.items else "(absent)"


@dataclass(frozen=True, slots=True)
class GoldProduct:
    """One line of a gold file.

    Attributes:
        row: 0-based line number in the file.
        product_id: None in ExtractGPT's layout; such a product is matched by `row`.
        values: the labelled attributes only.
        fields: the product's own text, field name -> text, if the line holds it (`"input": {...}`); hpd label
            writes it.
        corrected: attributes of a review line that the model had answered wrongly; None for other lines.
        renamed: attribute names in the file -> names in the schemas, if these differ.
        contradicted: attributes that the line labels differently under several names -> these names. They are not in
            `values`.
        paths: keys that lead to labels in objects, as in the file.
        doubtful: attributes whose labels `hpd evaluate --recheck` took out of the line: unknown, not absent.
    """

    row: int
    product_id: str | None
    category: str
    values: Mapping[str, GoldValue]
    fields: Mapping[str, str] | None = None
    corrected: frozenset[str] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    contradicted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    paths: Mapping[str, Place] = field(default_factory=dict)
    doubtful: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Name of this product in messages."""
        return self.product_id if self.product_id is not None else f"row {self.row}"

    def place_in(self, path: str) -> str:
        """Return its place in the gold file at `path`, for people."""
        return _place(path, self.row)


def read_gold(path: str, *schemas: Schemas | None) -> list[GoldProduct]:
    """Read the products of the gold file at `path` (local or any fsspec URI), in the file's order.

    Args:
        path: the file.
        schemas: known schemas that the gold is for (several runs, say). The members of their enums are values, even if
            they are words for nothing.

    Raises:
        UsageError: a line is not exactly in one of the layouts; the message names file, line and key.
    """
    return parse_gold(read_lines(path), path, [each for each in schemas if each is not None])


def parse_gold(lines: Sequence[bytes], path: str, schemas: Sequence[Schemas] | None = None) -> list[GoldProduct]:
    """Parse lines as `read_gold` does; without `schemas`, words for nothing stay as they are."""
    names = GoldNames(schemas or ())
    products = [
        _LineReader(_place(path, row), row, schemas, names).read(line)
        for row, line in enumerate(lines)
        if line.strip()  # a blank line keeps its number but is no product, as in a catalog
    ]
    if not products:
        raise UsageError(f"{path}: the gold file is empty")
    _refuse_doubled_ids(products, path)
    _say_contradicted(products, path)
    return products


def _say_contradicted(products: Sequence[GoldProduct], path: str) -> None:
    """Warn about contradicted labels, here for every command that reads gold."""
    found = [(product, *each) for product in products for each in product.contradicted.items()]
    if not found:
        return
    product, asked, names = found[0]
    listed = " and ".join(repr(name) for name in names)
    logger.warning(
        "%d answers count as not labelled: their labels contradict each other. The first: %s: %s both label the "
        "attribute %r of %r; correct one, or leave it out",
        *(len(found), product.place_in(path), listed, asked, product.category),
    )


def read_lines(path: str) -> list[bytes]:
    """Return the file's raw lines, blank ones too, because `GoldProduct.row` counts them. Raises `UsageError`."""
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


class _LineReader:
    """Parser of one line."""

    def __init__(self, place: str, row: int, schemas: Sequence[Schemas] | None, names: GoldNames) -> None:
        self._place, self._row, self._schemas, self._names = place, row, schemas, names
        self._category = ""
        self._texts: Mapping[str, str] = {}

    def read(self, line: bytes) -> GoldProduct:
        place = self._place
        try:
            entry = json.loads(line.decode("utf-8"), object_pairs_hook=_unique_keys, parse_int=self._integer)
        except UnicodeDecodeError as error:
            raise UsageError(f"{place}: not UTF-8 text: {error.reason} at byte {error.start} of the line") from error
        except ValueError as error:
            raise UsageError(f"{place}: not JSON: {error}. Every line is one product") from error
        except RecursionError as error:
            raise UsageError(f"{place}: objects or lists are nested too deeply. {_SHAPES}") from error
        if not isinstance(entry, dict):
            raise UsageError(f"{place}: a JSON object is needed, not {_kind(entry)}. Every line is one product")
        self._category = _name(entry, "category", place)
        layouts = [key for key in ("values", "target_scores", "attributes") if key in entry]
        if len(layouts) != 1:
            found = f"has both {layouts[0]!r} and {layouts[1]!r}" if layouts else "neither of the known layouts"
            raise UsageError(f"{place}: {found}: {_SHAPES}")
        readers = {"values": self._ours, "target_scores": self._extractgpt, "attributes": self._mave}
        taken_out = entry.get("doubtful")
        doubtful = taken_out if isinstance(taken_out, dict) else {}  # anything else is of somebody else
        product = replace(
            readers[layouts[0]](entry), doubtful=frozenset(self._names.asked(self._category, each) for each in doubtful)
        )
        return self._renamed(product)

    def _renamed(self, product: GoldProduct) -> GoldProduct:
        """Rename the labels to the schemas' names."""
        asked = {name: self._names.asked(self._category, name) for name in product.values}
        renamed = {name: called for name, called in asked.items() if called != name}
        if not renamed:
            return product
        values, contradicted = self._names.by_asked(self._category, product.values, GoldValue.dotted)
        corrected = product.corrected and frozenset(asked.get(name, name) for name in product.corrected) - {
            *contradicted
        }
        return replace(product, values=values, corrected=corrected, renamed=renamed, contradicted=contradicted)

    def _integer(self, digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            raise UsageError(
                f"{self._place}: a number of {len(digits)} digits, more than {_MAX_DIGITS}: no score and no position "
                f"has as many. An id or an accepted form is written in quotes"
            )
        return int(digits)

    def _ours(self, entry: Mapping[str, Any]) -> GoldProduct:
        values = _mapping(entry, "values", self._place)
        fields = _fields(entry, self._place)
        self._texts = fields or {}
        product_id = _text(entry, "product_id", self._place)
        labels = by_place(values, self._names.places(self._category), _is_accepted, _key(self._place, "values"))
        golds = {(name := dotted(place)): self._from_forms(name, forms, "values") for place, forms in labels.items()}
        paths = {dotted(place): place for place in labels if len(place) > 1}
        corrected = _corrected(entry, self._place)
        return GoldProduct(self._row, product_id, self._category, golds, fields, corrected, paths=paths)

    def _extractgpt(self, entry: Mapping[str, Any]) -> GoldProduct:
        scores = _mapping(entry, "target_scores", self._place)
        inputs = [name for name, text in entry.items() if name.startswith("input") and isinstance(text, str) and text]
        self._texts = {name: _text(entry, name, self._place) for name in inputs}
        for name in scores:
            refuse_blank(name, _key(self._place, "target_scores", name))
        golds = {name: self._from_scores(name, forms, "target_scores") for name, forms in scores.items()}
        return GoldProduct(self._row, None, self._category, golds)

    def _mave(self, entry: Mapping[str, Any]) -> GoldProduct:
        fields: dict[str, str] = {}
        for paragraph in _objects(entry.get("paragraphs", []), _key(self._place, "paragraphs")):
            source, text = (_text(paragraph, key, _key(self._place, "paragraphs")) for key in ("source", "text"))
            fields[source] = f"{fields[source]}\n{text}" if source in fields else text
        self._texts = fields
        golds: dict[str, GoldValue] = {}
        for attribute in _objects(entry["attributes"], _key(self._place, "attributes")):
            name = _name(attribute, "key", _key(self._place, "attributes"))
            place = _key(self._place, "attributes", name)
            if name in golds:
                raise UsageError(f"{place}: stands twice")
            evidences = _objects(attribute.get("evidences"), f"{place} > 'evidences'")
            forms = dict.fromkeys(_text(evidence, "value", place).strip() for evidence in evidences)
            golds[name] = self._forms_or_absent(name, list(forms), place) if forms else GoldValue(())
        return GoldProduct(self._row, _text(entry, "id", self._place), self._category, golds, fields or None)

    def _from_scores(self, name: str, scores: Any, key: str) -> GoldValue:
        place = _key(self._place, key, name)
        if not isinstance(scores, dict) or not scores:
            raise UsageError(f"{place}: a non-empty object {_FORMS_SHAPE} is needed")
        for form, score in scores.items():
            if not _is_accepted(score):
                raise UsageError(
                    f"{place}: the score of {form!r} is {json.dumps(score)[:80]}; only 1 and positions are known: "
                    f"{_FORMS_SHAPE}"
                )
            _check_form(form, place)
        return self._forms_or_absent(name, list(scores), place)

    def _forms_or_absent(self, name: str, forms: Sequence[str], place: str) -> GoldValue:
        """Apply ExtractGPT's rule: the first form alone decides whether the value is absent."""
        if self._says_nothing(name, forms[0]):
            return GoldValue(())
        for form in forms:
            _check_form(form, place)
        return GoldValue((tuple(form.strip() for form in forms if not self._says_nothing(name, form)),))

    def _from_forms(self, name: str, forms: Any, key: str) -> GoldValue:
        if forms is None:
            return GoldValue(())
        if isinstance(forms, dict):
            return self._from_scores(name, forms, key)
        place = _key(self._place, key, name)
        if not isinstance(forms, list) or not forms:
            raise UsageError(
                f"{place}: null (absent), a non-empty list of accepted forms, or a list of such lists is needed, not "
                f'{_kind(forms)}: ["12", "12 oz"] is one value, [["plum"], ["cocoa"]] are two'
            )
        if not any(isinstance(form, list) for form in forms):
            return GoldValue((self._accepted(name, forms, place),))
        if all(isinstance(item, list) for item in forms):
            return GoldValue(
                tuple(self._accepted(name, item, f"{place}, item {index}") for index, item in enumerate(forms))
            )
        raise UsageError(f"{place}: texts and lists are mixed; give either forms of one value or one list per value")

    def _accepted(self, name: str, forms: list[Any], place: str) -> tuple[str, ...]:
        if not forms:
            raise UsageError(f"{place}: the list of accepted forms is empty")
        for form in forms:
            if not isinstance(form, str):
                raise UsageError(f"{place}: an accepted form must be text, not {_kind(form)}: {form!r}")
            _check_form(form, place)
            if self._says_nothing(name, form):
                raise UsageError(
                    f"{place}: {form!r} never counts as a value; write null for an absent one. It is a value as the "
                    f"member of an enum in the schemas that are asked for, or as a name that the line's own 'input' has"
                )
        return tuple(form.strip() for form in forms)

    def _says_nothing(self, name: str, form: str) -> bool:
        """Return whether a form is a word for nothing that is not a member of any schema's enum."""
        if self._schemas is None:
            return False
        asked = self._names.asked(self._category, name)
        for schemas in self._schemas:
            for attribute in schemas[self._category].attributes if self._category in schemas else ():
                if attribute.name == asked and attribute.vocabulary.label(form.strip()) is not None:
                    return False
        return absence.read(form, name, self._texts) is not absence.Reading.VALUE


def _is_accepted(score: Any) -> bool:
    """Return whether a score is 1, the positions of a form, or both."""
    if isinstance(score, dict):
        return score.get("score", 1) == 1 and _are_positions(score.get("pid", []))
    return _are_positions(score) if isinstance(score, list) else score == 1


def _are_positions(places: Any) -> bool:
    return isinstance(places, list) and all(isinstance(place, int) or _are_positions(place) for place in places)


def _check_form(form: str, place: str) -> None:
    if not form.strip():
        raise UsageError(f"{place}: an accepted form is empty")
    if not is_encodable(form):
        raise UsageError(f"{place}: an accepted form holds half a surrogate pair, which is no text")


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


def _corrected(entry: Mapping[str, Any], place: str) -> frozenset[str] | None:
    if "review" not in entry:
        return None
    names = _mapping(entry, "review", place).get("corrected", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{_key(place, 'review', 'corrected')}: a list of attributes is needed")
    return frozenset(names)


def _objects(entries: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{place}: a list of objects is needed: {_SHAPES}")
    return entries


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


def _name(entry: Mapping[str, Any], key: str, place: str) -> str:
    """Return the name of a category or an attribute; unlike other texts, it must not be blank."""
    name = _text(entry, key, place)
    refuse_blank(name, f"{place}: {key!r}")
    return name


def _mapping(entry: Mapping[str, Any], key: str, place: str) -> dict[str, Any]:
    value = entry[key]
    if not isinstance(value, dict):
        raise UsageError(f"{place}: {key!r} must be an object, not {_kind(value)}")
    for name in value:
        if not is_encodable(name):
            raise UsageError(f"{_key(place, key, name)}: the name holds half a surrogate pair, which is no text")
    return value


def _key(place: str, *path: str) -> str:
    return f"{place}: {' > '.join(repr(part) for part in path)}"


def _kind(value: Any) -> str:
    if value == "":
        return "an empty text"
    if value == []:
        return "an empty list"
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
