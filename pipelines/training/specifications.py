"""The specifications of specifications.yaml: attributes, each with a way to draw an answer and its statement."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import yaml

from hpd_core import Attribute
from pipelines.scoring import fold
from pipelines.training.data import Items, words_pattern

_TRUE = 0.6  # share of the booleans that are true
_NAMED = 0.35  # share of the statements that name the attribute ("Guarantee: 24 months")
_NAMED_LINES = ("{name}: {text}", "{name}: {text}", "{name} - {text}", "{name} {text}", "{name}={text}")
# Words of an attribute's name that do not say what it is about.
_VAGUE = frozenset(
    ("of", "the", "in", "by", "up", "number", "level", "type", "class", "time", "range", "item", "required", "included")
)
_MIN_CUE = 5  # letters of a phrase's fixed part, so that it is found on purpose

Statement = tuple[Items, str]
"""An answer, and a text from which it follows."""


@dataclass(frozen=True, slots=True)
class Specification:
    """Something that a product may state.

    Attributes:
        draw: an answer and its statement.
        topics: words; a catalog with an attribute of such a name may mean the same by it.
        cues: finds in folded text what may state or deny it.
        units: finds amounts in its unit, with which a listing may state it in words of its own.
    """

    attribute: Attribute
    draw: Callable[[random.Random], Statement]
    topics: frozenset[str]
    cues: re.Pattern[str]
    units: re.Pattern[str]


def topic_words(text: str) -> frozenset[str]:
    """What a name is about: its words, without endings and spellings."""
    words = re.findall(r"[^\W\d_]+", fold(text).replace("colour", "color"))
    return frozenset(re.sub(r"(?<=\w\w[^\Ws])s$", "", word) for word in words if word not in _VAGUE)


def _specification(
    attribute: Attribute,
    draw: Callable[[random.Random], Statement],
    topics: str,
    cues: Iterable[str],
    units: Sequence[str] = (),
) -> Specification:
    found = {fold(cue) for cue in (attribute.name, *cues)}
    amounts = re.compile(
        r"\d\s*(?:" + "|".join(re.escape(fold(unit)) for unit in units) + r")(?!\w)" if units else "(?!)"
    )
    return Specification(attribute, draw, topic_words(f"{attribute.name} {topics}"), words_pattern(found), amounts)


def _fixed_parts(phrases: Iterable[str]) -> list[str]:
    parts = [phrase.replace("{}", "").strip() for phrase in phrases]
    return [part for part in parts if len(part) >= _MIN_CUE]


def _state(name: str, text: str, phrases: Sequence[str], generator: random.Random) -> str:
    """`text` in one of the phrases, or behind the attribute's name."""
    if generator.random() < _NAMED:
        return generator.choice(_NAMED_LINES).format(name=name, text=text)
    return generator.choice(phrases).format(text)


def _number(
    name: str, unit: str, low: float, high: float, phrases: Sequence[str], topics: str = "", also: str = ""
) -> Specification:
    """`unit`: the one asked for, and after slashes other ways to write it. Decimals are those of `low`."""
    asked, *others = unit.split("/")
    decimals = len(str(low).partition(".")[2])

    def draw(generator: random.Random) -> Statement:
        number = f"{generator.uniform(low, high):.{decimals}f}"
        written = generator.choice([asked, asked, *others])
        joint = generator.choice(["", " "]) if len(written) <= 3 else " "
        return [number], _state(name, f"{number}{joint}{written}".strip(), phrases, generator)

    attribute = Attribute(name=name, type="number", unit=asked or None)
    units = [item for item in (asked, *others) if item]
    return _specification(attribute, draw, topics, [*_fixed_parts(phrases), *also.split()], units)


def _boolean(name: str, yes: Sequence[str], no: Sequence[str], topics: str = "", also: str = "") -> Specification:
    def draw(generator: random.Random) -> Statement:
        is_true = generator.random() < _TRUE
        word = generator.choice(("yes", "Yes", "true", "✓") if is_true else ("no", "No", "false", "✗"))
        return ["true" if is_true else "false"], _state(name, word, yes if is_true else no, generator)

    return _specification(Attribute(name=name, type="boolean"), draw, topics, [*yes, *no, *also.split()])


def _enum(name: str, members: Mapping[str, Sequence[str]], topics: str = "", also: str = "") -> Specification:
    """Per member the ways to say it; the member itself may stand alone."""

    def draw(generator: random.Random) -> Statement:
        member = generator.choice(list(members))
        return [member], _state(name, member, members[member], generator)

    attribute = Attribute(name=name, type="enum", values=tuple(members))
    said = [text for member, texts in members.items() for text in (member, *texts)]
    return _specification(attribute, draw, topics, [*said, *also.split()])


def _list(name: str, members: Sequence[str], phrases: Sequence[str], topics: str = "", also: str = "") -> Specification:
    def draw(generator: random.Random) -> Statement:
        chosen = generator.sample(members, generator.randint(1, 4))
        *most, last = chosen
        text = generator.choice((f"{', '.join(most)} and {last}" if most else last, ", ".join(chosen)))
        return chosen, _state(name, text, phrases, generator)

    cues = [*members, *_fixed_parts(phrases), *also.split()]
    return _specification(Attribute(name=name, multiple=True), draw, topics, cues)


def _string(
    name: str,
    phrases: Sequence[str],
    members: Sequence[str] = (),
    draw: Literal["code", "name"] | None = None,
    topics: str = "",
    also: str = "",
) -> Specification:
    """One of `members`, or a text of the kind that `draw` names."""

    def draw_statement(generator: random.Random) -> Statement:
        text = _DRAWN[draw](generator) if draw else generator.choice(members)
        return [text], _state(name, text, phrases, generator)

    return _specification(Attribute(name=name), draw_statement, topics, [*_fixed_parts(phrases), *also.split()])


def _code(generator: random.Random) -> str:
    letters = "".join(generator.sample("ABCDEFGHKLMNPRSTVWXZ", generator.randint(1, 3)))
    number = generator.randint(10, 99999)
    return letters + generator.choice(("", "-", " ")) + str(number) + generator.choice(("", "", "-B", "X", "/2"))


def _name(generator: random.Random) -> str:
    syllables = ("ba", "dor", "fen", "gal", "hal", "ki", "lo", "mer", "nor", "pra", "quin", "ri", "sol", "tam", "vel")
    word = "".join(generator.sample(syllables, generator.randint(2, 3))).capitalize()
    return word + generator.choice(("", "", " & Sons", " Works", " Studio", " II"))


_DRAWN = {"code": _code, "name": _name}


def _parts(parts: Sequence[str], materials: Sequence[str], shades: Sequence[str]) -> Iterator[Specification]:
    for part in parts:
        phrases = (f"{{}} {part}", f"{part} made of {{}}", f"{part} in {{}}", f"with a {part} of {{}}")
        about = f"{part} material fabric cloth made wood metal"
        yield _string(f"{part.capitalize()} material", phrases, members=materials, topics=about, also=part)
        coloured = (f"{{}} {part}", f"{part} in {{}}", f"the {part} is {{}}")
        about = f"{part} color shade hue"
        yield _string(f"Colour of the {part}", coloured, members=shades, topics=about, also=part)


def _load() -> Iterator[Specification]:
    groups = yaml.safe_load(Path(__file__).with_name("specifications.yaml").read_text(encoding="utf-8"))
    yield from _parts(groups["parts"], groups["materials"], groups["shades"])
    factories: dict[str, Callable[..., Specification]] = {
        "numbers": _number,
        "booleans": _boolean,
        "enums": _enum,
        "lists": _list,
        "strings": _string,
    }
    for group, factory in factories.items():
        for entry in groups[group]:
            description = entry.pop("about", None)
            item = factory(**entry)
            yield replace(item, attribute=item.attribute.model_copy(update={"description": description}))


SPECIFICATIONS: Sequence[Specification] = tuple(_load())
