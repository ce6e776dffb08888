"""Types guessed from counts of values: booleans, numbers with a unit, dates, enums, or strings.

Used to propose schemas from gold files and catalogs. A person reviews a proposal; unclear attributes stay strings.
"""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpd_core import Attribute, Member, Unit
from hpd_core.text import absence
from hpd_core.text.near_names import fold_spelling
from hpd_core.types import AttributeType
from pipelines.normalising.units import is_known, same_kind, wanted_unit

TRUTHS = frozenset(("yes", "no", "true", "false", "ja", "nein", "sí", "si", "oui", "non"))
_NUMBER = re.compile(
    r"(?P<money>(?:US)?\$|[€£¥]|USD|EUR|GBP|CHF)\s?\d[\d.,]*|[+-]?\d[\d.,]*\s*(?P<unit>[^\s\d.,+-][^\d,]{0,11})?"
)
_CODE = re.compile(r"0\d|\d{11}")  # a postcode, a barcode: digits that are no quantity
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?|\d{1,2}[./]\d{1,2}[./]\d{4}|\d{4}/\d\d?/\d\d?")
_QUOTE = re.compile(r"[\"\\]")  # which models often write wrongly
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

    def attribute(self, name: str, *, description: str | None = None, multiple: bool = False) -> Attribute:
        """Return an attribute of this type."""
        return Attribute(
            name=name,
            description=description,
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
    if not all(value.isprintable() and len(value) <= _MAX_LABEL and not _QUOTE.search(value) for value in counts):
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
