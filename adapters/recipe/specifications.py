"""Specifications read from specifications.yaml and translations.yaml: attributes, each with a way to draw an answer
and a statement of it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Protocol

import yaml

from hpd_core import Attribute, Member, Unit
from pipelines.quality.scoring import fold, words_pattern
from pipelines.training.labelled_products import Items

_TRUE = 0.6  # share of the booleans that are true
_CONVERTED = 0.4  # share of the numbers that are stated in another unit, where there is one
_GROUPED = 0.4  # share of the numbers above 999 with a comma behind the thousands
_NAMED = 0.35  # share of the statements that name the attribute ("Guarantee: 24 months")
_NAMED_LINES = ("{name}: {text}", "{name}: {text}", "{name} - {text}", "{name} {text}", "{name}={text}")
# Words of an attribute's name that do not say what it is about.
_VAGUE = frozenset(
    ("of", "the", "in", "by", "up", "number", "level", "type", "class", "time", "range", "item", "required", "included")
)
_MIN_CUE, _MIN_UNSPACED_CUE = 5, 2  # letters of a phrase's fixed part, so that it is found on purpose
_UNSPACED = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")  # Japanese

Statement = tuple[Items, str]
"""Answer, and a text from which it follows."""


class SpecificationDraw(Protocol):
    """Callable that draws an answer and its statement: in `language` if translations.yaml has one, else in English."""

    def __call__(self, generator: random.Random, language: str | None = None) -> Statement:
        """Draw from `generator` alone."""


@dataclass(frozen=True, slots=True)
class Specification:
    """Attribute that a product text may state, with its statements.

    Attributes:
        draw: function that draws an answer and its statement.
        topics: words of its name and topics. A catalog attribute with one of them may mean the same.
        cues: pattern for phrases in folded text that may state or deny it.
        units: pattern for amounts in its units in folded text, since a listing may state it in other words.
        languages: languages besides English in which it can be stated.
        related: names of specifications that its statement may also answer.
    """

    attribute: Attribute
    draw: SpecificationDraw
    topics: frozenset[str]
    cues: re.Pattern[str]
    units: re.Pattern[str]
    languages: frozenset[str] = frozenset()
    related: frozenset[str] = frozenset()


Translations = Mapping[str | None, Any]
"""Language -> statements of one specification in it; the shape depends on the kind (see translations.yaml)."""


def topic_words(text: str) -> frozenset[str]:
    """Return the topic words of a name: folded, without plural endings, spelling variants and vague words."""
    words = re.findall(r"[^\W\d_]+", fold(text).replace("colour", "color"))
    return frozenset(re.sub(r"(?<=\w\w[^\Ws])s$", "", word) for word in words if word not in _VAGUE)


def _specification(
    attribute: Attribute,
    draw: SpecificationDraw,
    topics: str,
    cues: Iterable[str],
    units: Sequence[str] = (),
) -> Specification:
    found = {fold(cue) for cue in (attribute.name, *cues)}
    unspaced = {cue for cue in found if _UNSPACED.search(cue)}
    pattern = words_pattern(found - unspaced).pattern
    if unspaced:  # words that nothing keeps apart
        pattern += "|" + "|".join(re.escape(cue) for cue in sorted(unspaced))
    amounts = re.compile(
        r"\d\s*(?:" + "|".join(re.escape(fold(unit)) for unit in units) + r")(?!\w)" if units else "(?!)"
    )
    return Specification(attribute, draw, topic_words(f"{attribute.name} {topics}"), re.compile(pattern), amounts)


def _fixed_parts(phrases: Iterable[str]) -> list[str]:
    """Return the texts around the placeholders of `phrases` that are long enough to serve as cues."""
    parts = [part.strip(" ：、") for phrase in phrases for part in re.split(r"\{[,.]?\}", phrase)]
    return [part for part in parts if len(part) >= (_MIN_UNSPACED_CUE if _UNSPACED.search(part) else _MIN_CUE)]


def _state(name: str, text: str, phrases: Sequence[str], generator: random.Random) -> str:
    """Put `text` into one of the phrases, or after the attribute's name."""
    if generator.random() < _NAMED:
        return generator.choice(_NAMED_LINES).format(name=name, text=text)
    return generator.choice(phrases).format(text)


def _number(
    told: Translations,
    name: str,
    unit: str,
    low: float,
    high: float,
    phrases: Sequence[str],
    converted: Mapping[str, float] | None = None,
    topics: str = "",
    also: str = "",
) -> Specification:
    """Build a specification of a number between `low` and `high`, with the decimals of `low`.

    `unit`: the unit asked for, then other spellings of it, separated by slashes. `converted`: other units that a text
    may use -> how much of the unit asked for each one is.
    """
    asked, *others = unit.split("/")
    decimals = len(str(low).partition(".")[2])

    def draw(generator: random.Random, language: str | None = None) -> Statement:
        number = f"{generator.uniform(low, high):.{decimals}f}"
        number = number.removeprefix("-") if not float(number) else number
        if language in told:
            phrase = generator.choice(told[language])
            return [number], phrase.replace("{,}", number.replace(".", ",")).replace("{.}", number)
        answer, written = number, generator.choice([asked, asked, *others])
        if converted and generator.random() < _CONVERTED:
            written = generator.choice(list(converted))
            answer, number = _convert(number, converted[written])
        elif asked and len(number) > 3 and decimals == 0 and generator.random() < _GROUPED:
            number = f"{int(number):,}"
        joint = generator.choice(["", " "]) if len(written) <= 3 else " "
        return [answer], _state(name, f"{number}{joint}{written}".strip(), phrases, generator)

    attribute = Attribute(name=name, type="number", unit=Unit(want=asked) if asked else None)
    units = [item for item in (asked, *others, *(converted or ())) if item]
    cues = [*_fixed_parts(phrases), *_fixed_parts(item for phrases in told.values() for item in phrases)]
    return _specification(attribute, draw, topics, [*cues, *also.split()], units)


def _convert(number: str, factor: float) -> tuple[str, str]:
    """Round `number` in a unit worth `factor` of the asked one. Return (value in the asked unit, value as stated)."""
    exact = Decimal(str(factor))
    places = Decimal(1) if exact < 1 else Decimal("0.1")
    stated = max(places, (Decimal(number) / exact).quantize(places)).normalize()
    return f"{(stated * exact).normalize():f}", f"{stated:f}"


def _boolean(
    told: Translations, name: str, yes: Sequence[str], no: Sequence[str], topics: str = "", also: str = ""
) -> Specification:
    def draw(generator: random.Random, language: str | None = None) -> Statement:
        is_true = generator.random() < _TRUE
        answer = ["true" if is_true else "false"]
        if language in told:
            return answer, generator.choice(told[language]["yes" if is_true else "no"])
        word = generator.choice(("yes", "Yes", "true", "✓") if is_true else ("no", "No", "false", "✗"))
        return answer, _state(name, word, yes if is_true else no, generator)

    said = [*yes, *no, *(text for ways in told.values() for texts in ways.values() for text in texts)]
    return _specification(Attribute(name=name, type="boolean"), draw, topics, [*said, *also.split()])


def _enum(
    told: Translations, name: str, members: Mapping[str, Sequence[str]], topics: str = "", also: str = ""
) -> Specification:
    """Build a specification of an enum. `members`: member -> phrases that state it; it may also be stated by itself."""

    def draw(generator: random.Random, language: str | None = None) -> Statement:
        member = generator.choice(list(members))
        if language in told:
            return [member], generator.choice(told[language][member])
        return [member], _state(name, member, members[member], generator)

    attribute = Attribute(name=name, type="enum", values=tuple(Member(label=each) for each in members))
    ways = [members, *told.values()]
    said = [*members, *(text for way in ways for texts in way.values() for text in texts)]
    return _specification(attribute, draw, topics, [*said, *also.split()])


def _list(
    told: Translations, name: str, members: Sequence[str], phrases: Sequence[str], topics: str = "", also: str = ""
) -> Specification:
    def draw(generator: random.Random, language: str | None = None) -> Statement:
        way = told.get(language, {"members": members, "and": " and ", "phrases": phrases})
        chosen = generator.sample(way["members"], generator.randint(1, 4))
        *most, last = chosen
        # In Japanese the joint is that of all words.
        comma = way["and"] if way["and"] == "、" else ", "
        text = generator.choice((f"{comma.join(most)}{way['and']}{last}" if most else last, comma.join(chosen)))
        if language in told:
            return chosen, generator.choice(way["phrases"]).replace("{}", text)
        return chosen, _state(name, text, phrases, generator)

    cues = [*members, *_fixed_parts(phrases), *_told_parts(told), *also.split()]
    return _specification(Attribute(name=name, multiple=True), draw, topics, cues)


def _string(
    told: Translations,
    name: str,
    phrases: Sequence[str],
    members: Sequence[str] = (),
    draw: Literal["code", "name"] | None = None,
    topics: str = "",
    also: str = "",
) -> Specification:
    """Build a specification of a string: one of `members`, or a drawn text of kind `draw`."""

    def draw_statement(generator: random.Random, language: str | None = None) -> Statement:
        if language in told:
            text = generator.choice(told[language]["members"])
            return [text], generator.choice(told[language]["phrases"]).replace("{}", text)
        text = _DRAWN[draw](generator) if draw else generator.choice(members)
        return [text], _state(name, text, phrases, generator)

    cues = [*_fixed_parts(phrases), *_told_parts(told), *also.split()]
    return _specification(Attribute(name=name), draw_statement, topics, cues)


def _told_parts(told: Translations) -> list[str]:
    """Return the members and the phrases' fixed parts of lists and strings in other languages."""
    parts = [part for way in told.values() for part in _fixed_parts(way["phrases"])]
    return [*parts, *(member for way in told.values() for member in way["members"])]


def _code(generator: random.Random) -> str:
    letters = "".join(generator.sample("ABCDEFGHKLMNPRSTVWXZ", generator.randint(1, 3)))
    number = generator.randint(10, 99999)
    return letters + generator.choice(("", "-", " ")) + str(number) + generator.choice(("", "", "-B", "X", "/2"))


def _name(generator: random.Random) -> str:
    syllables = ("ba", "dor", "fen", "gal", "hal", "ki", "lo", "mer", "nor", "pra", "quin", "ri", "sol", "tam", "vel")
    word = "".join(generator.sample(syllables, generator.randint(2, 3))).capitalize()
    return word + generator.choice(("", "", " & Sons", " Works", " Studio", " II"))


_DRAWN = {"code": _code, "name": _name}


def _parts(
    parts: Sequence[str], materials: Sequence[str], shades: Sequence[str], told: Mapping[str, Translations]
) -> Iterator[Specification]:
    for part in parts:
        phrases = (f"{{}} {part}", f"{part} made of {{}}", f"{part} in {{}}", f"with a {part} of {{}}")
        about = f"{part} material fabric cloth made wood metal"
        name = f"{part.capitalize()} material"
        yield _stated_in(told.get(name, {}), _string, name, phrases, members=materials, topics=about, also=part)
        coloured = (f"{{}} {part}", f"{part} in {{}}", f"the {part} is {{}}")
        about = f"{part} color shade hue"
        name = f"Colour of the {part}"
        yield _stated_in(told.get(name, {}), _string, name, coloured, members=shades, topics=about, also=part)


def _stated_in(told: Translations, factory: Callable[..., Specification], *args: Any, **settings: Any) -> Specification:
    item = factory(told, *args, **settings)
    related = frozenset(name for group in _GROUPS["related"] if item.attribute.name in group for name in group)
    return replace(item, languages=frozenset(filter(None, told)), related=related - {item.attribute.name})


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return content


_GROUPS = _read("specifications.yaml")
_TRANSLATIONS = _read("translations.yaml")
LANGUAGES: Sequence[str] = tuple(_TRANSLATIONS)
"""Languages besides English in which some of the specifications can be stated."""
OTHERS: Mapping[str, Sequence[str]] = {language: content["others"] for language, content in _TRANSLATIONS.items()}
"""Language -> other sentences of listings, which state no specification."""


def _told(kind: str) -> dict[str, dict[str | None, Any]]:
    """Return the translations of one kind: name of the specification -> language -> its statements."""
    found: dict[str, dict[str | None, Any]] = {}
    for language, content in _TRANSLATIONS.items():
        for name, ways in content[kind].items():
            found.setdefault(name, {})[language] = ways
    return found


def _load() -> Iterator[Specification]:
    yield from _parts(_GROUPS["parts"], _GROUPS["materials"], _GROUPS["shades"], _told("strings"))
    factories: dict[str, Callable[..., Specification]] = {
        "numbers": _number,
        "booleans": _boolean,
        "enums": _enum,
        "lists": _list,
        "strings": _string,
    }
    for group, factory in factories.items():
        told = _told(group)
        for entry in _GROUPS[group]:
            description = entry.pop("about", None)
            item = _stated_in(told.get(entry["name"], {}), factory, **entry)
            yield replace(item, attribute=item.attribute.model_copy(update={"description": description}))


SPECIFICATIONS: Sequence[Specification] = tuple(_load())
