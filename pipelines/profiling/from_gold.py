"""Category schemas from the attributes that gold files are labelled with.

Types guessed from counts of values: booleans, numbers with a unit, dates, enums, or strings.

Used to propose schemas from gold files and catalogs. A person reviews a proposal; unclear attributes stay strings.
"""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations

from hpd_core import Attribute, CategorySchema, Member, Unit
from hpd_core.plain_data import Place, dotted
from hpd_core.text import absence
from hpd_core.text.near_names import fold_spelling
from hpd_core.types import AttributeType
from pipelines.config.importing.imported import Imported, SourceCategory, called_alike, listed
from pipelines.normalising.units import is_known, same_kind, wanted_unit
from pipelines.quality.gold import GoldProduct, GoldValue


def schemas_from_gold(products: Iterable[GoldProduct]) -> dict[str, CategorySchema]:
    """Return schemas with every attribute that `products` are labelled with, as a string.

    Categories are in alphabetical order, attributes by number of labelled products, then name. A category
    whose products have no label at all is left out. Attributes stand in objects where labels do.
    """
    num_labels: dict[str, Counter[str]] = {}
    paths: dict[str, Place] = {}
    multiple: set[tuple[str, str]] = set()
    for product in products:
        counter = num_labels.setdefault(product.category, Counter())
        paths |= product.paths
        for name, value in product.values.items():
            counter[name] += 1
            if len(value.items) > 1:
                multiple.add((product.category, name))
    schemas = {}
    paths = _objects(paths, {name for counter in num_labels.values() for name in counter})
    for category, counter in sorted(num_labels.items()):
        names = sorted(counter, key=lambda name: (-counter[name], name))
        attributes = tuple(
            Attribute(name=name, multiple=(category, name) in multiple, path=paths.get(name, ())) for name in names
        )
        if attributes:
            schemas[category] = CategorySchema(category=category, attributes=attributes)
    return schemas


def _objects(paths: Mapping[str, Place], names: Collection[str]) -> dict[str, Place]:
    """Return the paths without those through a name that is labelled with a value itself; these keep whole names."""
    return {
        name: place
        for name, place in paths.items()
        if not any(dotted(place[:depth]) in names for depth in range(1, len(place)))
    }


def imported_gold(products: Sequence[GoldProduct], *, plain: bool = False, exclusive: bool = False) -> Imported:
    """Return the schemas of `schemas_from_gold` with guessed types; an attribute has one type in all its categories.

    Comments hold the counts of its values.

    Args:
        plain: texts alone, without types and comments.
        exclusive: make single texts exclusive, except of those they share with.
    """
    schemas = schemas_from_gold(products)
    values, forms = ({}, {}) if plain else _values(products)
    kinds = {name: guessed_type(counts, forms[name]) for name, counts in values.items()}
    library: dict[str, Attribute] = {}
    comments: dict[str, str] = {}
    categories = []
    for category, schema in schemas.items():
        handles = []
        for attribute in schema.attributes:
            name = attribute.name
            handle = f"{name} (several)" if attribute.multiple else name
            typed = kinds.get(name, GuessedType()).attribute(name, multiple=attribute.multiple)
            library[handle] = typed.model_copy(update={"path": attribute.path})
            if counts := values.get(name):
                comments[handle] = f"{counts.total():,} values, {len(counts):,} different: {described_counts(counts)}"
            handles.append(handle)
        categories.append(SourceCategory(category, (category,), tuple(handles)))
    if exclusive:
        sharing: dict[str, set[str]] = defaultdict(set)
        for (_, name), others in shared_text(products).items():
            sharing[name] |= others
        library = dict(zip(library, exclusive_attributes(library.values(), sharing), strict=True))
    alike = [text for each in schemas.values() for text in called_alike(each.category, each.attributes, "in")]
    notes = [f"called alike in the gold, and probably one attribute: {listed(alike)}"] if alike else []
    return Imported(f"{len(products):,} labelled products", library, categories, notes, comments=comments)


def _values(products: Iterable[GoldProduct]) -> tuple[dict[str, Counter[str]], dict[str, dict[str, set[str]]]]:
    """Return (attribute -> counts of its values by first form, attribute -> first form -> other forms)."""
    values: dict[str, Counter[str]] = defaultdict(Counter)
    forms: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for product in products:
        for name, value in product.values.items():
            for first, *others in value.items:
                values[name][first] += 1
                forms[name][first].update(others)
    return values, forms


_OFTEN = 0.1
"""Least share of the products with values for both attributes."""

Sharing = Mapping[tuple[str, str], frozenset[str]]
"""Category and name of an attribute -> names of attributes that share its text."""


def shared_text(products: Iterable[GoldProduct]) -> Sharing:
    """Find attributes that share text: in at least a tenth of the products with both, one value contains the other."""
    together: Counter[tuple[str, str, str]] = Counter()
    shared: Counter[tuple[str, str, str]] = Counter()
    for product in products:
        there = sorted((name, value) for name, value in product.values.items() if not value.is_absent)
        for (one, its_value), (other, its_other) in combinations(there, 2):
            together[product.category, one, other] += 1
            shared[product.category, one, other] += _stand_in_each_other(its_value, its_other)
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (category, one, other), count in shared.items():
        if count and count >= _OFTEN * together[category, one, other]:
            found[category, one].add(other)
            found[category, other].add(one)
    return {place: frozenset(names) for place, names in found.items()}


def exclusive_attributes(attributes: Collection[Attribute], sharing: Mapping[str, Set[str]]) -> list[Attribute]:
    """Make the single texts among the attributes exclusive.

    `sharing`: name -> attributes that it may share its text with; only single texts among them are used.
    """
    texts = {each.name for each in attributes if _is_single_text(each)}
    return [
        each.model_copy(
            update={"verbatim": "exclusive", "shares_text_with": tuple(sorted(texts & sharing.get(each.name, set())))}
        )
        if _is_single_text(each)
        else each
        for each in attributes
    ]


def _is_single_text(attribute: Attribute) -> bool:
    return attribute.type == "string" and not attribute.multiple


def _stand_in_each_other(one: GoldValue, other: GoldValue) -> bool:
    texts, others = ([form for forms in value.items for form in forms] for value in (one, other))
    return any(a in b or b in a for a in texts for b in others)


TRUTHS = frozenset(("yes", "no", "true", "false", "ja", "nein", "sí", "si", "oui", "non"))
_NUMBER = re.compile(
    r"(?P<money>(?:US)?\$|[€£¥]|USD|EUR|GBP|CHF)\s?\d[\d.,]*|[+-]?\d[\d.,]*\s*(?P<unit>[^\s\d.,+-][^\d,]{0,11})?"
)
_CODE = re.compile(r"0\d|\d{11}")  # a postcode, a barcode: digits that are no quantity
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?|\d{1,2}[./]\d{1,2}[./]\d{4}|\d{4}/\d\d?/\d\d?")
_NO_MEMBER = re.compile(r"[\"\\\d]")  # quotes, which models often write wrongly; numbers, of which others may come
_TYPED_SHARE = 0.9  # of the values that are of the type
_TYPED_VALUES = 3
_MAX_MEMBERS = 24
_MIN_REPEATS = 3  # values a member, on average
# Of the values, those that were seen once: about as probable is it that the next value was never seen (Good-Turing).
_MAX_SOLE_SHARE = 0.08
_MAX_LABEL = 40
_MAX_SHOWN = 8


@dataclass(frozen=True, slots=True)
class GuessedType:
    """Type, with the unit of a number and the members of an enum."""

    type: AttributeType = "string"
    unit: Unit | None = None
    members: tuple[Member, ...] | None = None

    def attribute(self, name: str, *, multiple: bool = False) -> Attribute:
        """Return an attribute of this type."""
        return Attribute(
            name=name,
            type=self.type,
            unit=self.unit,
            values=self.members,
            multiple=multiple and self.type != "boolean",
        )


def guessed_type(values: Mapping[str, int], other_forms: Mapping[str, Iterable[str]] | None = None) -> GuessedType:
    """Guess the type that nearly all values have.

    Args:
        values: value -> how often it was seen.
        other_forms: value -> further spellings, which become synonyms.
    """
    counts: Counter[str] = Counter()
    for value, count in values.items():
        if (text := value.strip()) and absence.read(text, "") is not absence.Reading.NOTHING:
            counts[text] += count
    needed = max(_TYPED_VALUES, _TYPED_SHARE * counts.total())
    if sum(count for value, count in counts.items() if value.casefold() in TRUTHS) >= needed:
        return GuessedType("boolean")
    if sum(count for value, count in counts.items() if _DATE.fullmatch(value)) >= needed:
        return GuessedType("date")
    if (units := _units(counts)).total() >= needed and not any(map(_CODE.match, counts)):
        return _number_kind(units) or GuessedType()
    members = _members(counts, other_forms or {})
    return GuessedType("enum", members=members) if members else GuessedType()


def described_counts(values: Mapping[str, int]) -> str:
    """List the most frequent values, with their counts if above one: "red 6, blue 4, teal"."""
    counts = Counter(values)
    more = f" and {len(counts) - _MAX_SHOWN:,} more" if len(counts) > _MAX_SHOWN else ""
    shown = (f"{value} {count:,}" if count > 1 else value for value, count in counts.most_common(_MAX_SHOWN))
    return ", ".join(shown) + more


def _units(counts: Counter[str]) -> Counter[str]:
    """Count the units of the values that are numbers; "" is a number without a unit."""
    units: Counter[str] = Counter()
    for value, count in counts.items():
        if match := _NUMBER.fullmatch(value):
            units[(match["money"] or match["unit"] or "").strip()] += count
    return units


def _number_kind(units: Counter[str]) -> GuessedType | None:
    """Return the number type if all units are one or can be converted into each other, else None."""
    folded: dict[str, Counter[str]] = defaultdict(Counter)
    for unit, count in units.items():
        folded[unit.casefold()][unit] += count
    ranked = sorted(folded.values(), key=lambda each: -each.total())
    spelled = [each.most_common(1)[0][0] for each in ranked]
    if len(spelled) == 1:
        return GuessedType("number", Unit(want=spelled[0]) if spelled[0] else None)
    # A number alone, between others with a unit, may be in any.
    if "" in spelled:
        return None
    first, *others = map(wanted_unit, spelled)
    is_one = is_known(first) and all(is_known(each) and same_kind(first, each) for each in others)
    return GuessedType("number", Unit(want=spelled[0])) if is_one else None


def _members(counts: Counter[str], other_forms: Mapping[str, Iterable[str]]) -> tuple[Member, ...] | None:
    """Return the members of an enum, if the values are few and repeat often enough, else None."""
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for value, count in counts.items():
        spellings[fold_spelling(value)][value] += count
    total = counts.total()
    sole = sum(each.total() for each in spellings.values() if each.total() == 1)
    if not 2 <= len(spellings) <= min(_MAX_MEMBERS, total / _MIN_REPEATS) or sole > _MAX_SOLE_SHARE * total:
        return None
    if not all(value.isprintable() and len(value) <= _MAX_LABEL and not _NO_MEMBER.search(value) for value in counts):
        return None
    members = []
    for spelled in sorted(spellings.values(), key=lambda each: -each.total()):
        written = spelled.most_common(1)[0][0]
        label = html.unescape(written).strip() or written
        forms = [form.strip() for value in spelled for form in (value, *other_forms.get(value, ()))]
        synonyms = dict.fromkeys(form for form in forms if form != label and form and form.isprintable())
        members.append(Member(label=label, synonyms=tuple(synonyms)))
    # The label of another member is not a synonym of this one.
    labels = {fold_spelling(member.label) for member in members}
    return tuple(member.model_copy(update={"synonyms": tuple(_own_synonyms(member, labels))}) for member in members)


def _own_synonyms(member: Member, labels: set[str]) -> Iterable[str]:
    return (each for each in member.synonyms if fold_spelling(each) not in labels)
