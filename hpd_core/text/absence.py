"""Words for nothing: ways in which texts, models and people write that there is no value.

The rule is the same for extraction, labelling, gold and training. Only a whole item counts, never a part of it ("Not
Your Mother's" is a brand). A member of an enum is always a value: callers look for members first.

    "N/A", "not specified", "k.A.", "--"    nothing, whatever the letters' case, accents, spaces and brackets
    "Unknown", "NA", "None"                 one word may be a name, too: it is one if the text spells it as a name,
                                            with the same capitals, among other words and not after a label
    "unbranded", "No Brand", "ノーブランド"   a value: that there is no brand is an answer, and shops list it as one
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum, auto
from functools import lru_cache
from importlib import resources

from hpd_core.text.separators import WORDS

# Placeholders that a spreadsheet, a database or a template leaves.
_LEFT_BEHIND = re.compile(
    r"#(?:N/A|NA|REF|VALUE|DIV/0|NAME|NULL|NUM|CALC|SPILL|GETTING_DATA)[!?]?|\\N|-?1\.#(?:IND|QNAN)"
)
_IN_BRACKETS = frozenset({"empty", "blank", "missing", "leer", "fehlt", "vacio", "vide"})

_MAX_LENGTH = 120  # characters; no word for nothing is longer
_OUTER = " \t\r\n\"'`´‘’‚“”„«»‹›「」『』【】〈〉《》〔〕()[]{}<>.,;:!?¿¡…·・•*_~〜|/\\#=-‐‑‒–—―−─ー。、،؛؟"
_BRACKETS = "([{<【「『《〈"
_VERB = re.compile(
    r"^(?:(?:die|der|das|es|de|het) )?(?:ist|sind|wird|wurden?|is|werd) "
    r"|^(?:la|le|el|il|lo|a|o) (?=(?:n'est|non?|nao) )"
)
_BETWEEN_WORDS = re.compile(r"[\s_\-‐‑‒–—―−־]+")
_ABBREVIATION = re.compile(r"(\w{1,2})\s*[./\\]\s*(\w{1,2})(?:\s*[./\\]\s*(\w{1,2}))?")
# A slash between two letters is a part of "N/A".
_SEPARATORS = re.compile(r"[,;:|()\[\]]|\.\s|\s[-–—]\s|\s(?:or|oder|ou|o)\s|/(?!(?<=\b\w/)\w\b)", re.IGNORECASE)
_SAME_LETTERS = str.maketrans({"‘": "'", "’": "'", "´": "'", "ı": "i"})
_LABELS = (":", "=", "：", "|", "\t")
_COPULAS = frozenset({"is", "are", "was", "ist", "est", "es", "è"})


_NO_NAMES, _BEFORE_NAMES, _NO_NAME_BEHIND, _PROPERTIES = (
    frozenset(WORDS["absence"][name].split()) for name in ("no_names", "before_names", "no_name_behind", "properties")
)
_LABEL_WORDS = 3
_ENDS_OF_PARTS = (".", "!", "?", ";", ",")
_JOINTS = frozenset(" (_-/")
_WINDOW = 80  # characters on each side of a word that tell what it is
_WORD_BEFORE = re.compile(r"(\w+) +\Z")
_WORD_BEHIND = re.compile(r"(?:['’]s|[®™©])? +\(?(\w+)")


class Reading(Enum):
    """Reading of an item."""

    VALUE = auto()
    NOTHING = auto()
    UNCLEAR = auto()
    """Name or nothing: the text has the word, but does not spell it as a name. It counts as nothing."""


def read(item: str, attribute: str, fields: Mapping[str, str] | None = None) -> Reading:
    """Return whether an item that is not a member of an enum is a value, nothing, or unclear.

    Args:
        item: the answer.
        attribute: the attribute's name.
        fields: the record's texts, if they are known and a name may be the answer.
    """
    item = item.strip()
    if len(item) > _MAX_LENGTH or not _says_nothing(item, attribute):
        return Reading.VALUE
    name = item.rstrip(".")
    if fields and name.isalpha() and name[0].isupper():
        return Reading.NOTHING if fold(name) in _NO_NAMES else _as_name(name, _fold_name(attribute), fields.values())
    return Reading.NOTHING


def fold(text: str) -> str:
    """Return `text` without case, accents, brackets, quotes and dots, which words for nothing may have or lack."""
    text = html.unescape(text).casefold()
    if not text.isascii():
        letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold()).translate(_SAME_LETTERS)
        text = "".join(letter for letter in letters if unicodedata.category(letter) not in ("Mn", "Cf"))
        text = unicodedata.normalize("NFC", text)
    text = text.strip(_OUTER)
    if found := _ABBREVIATION.fullmatch(text):
        return "/".join(filter(None, found.groups()))
    return _BETWEEN_WORDS.sub(" ", text.replace(".", "")).strip()


_fold_name = lru_cache(maxsize=1024)(fold)


@lru_cache(maxsize=16384)
def _says_nothing(item: str, attribute: str) -> bool:
    """Return whether the whole item is a word for nothing. It may contain the attribute's name: "unknown brand"."""
    if not item:
        return False
    text, name = fold(item), _fold_name(attribute)
    if not text or _is_phrase(text) or _LEFT_BEHIND.fullmatch(item):
        return True
    if text == name or text in _IN_BRACKETS:
        return item[0] in _BRACKETS
    if name and name in text:
        rest = fold(re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", " ", text))
        if rest and _is_phrase(rest):
            return True
    # "N/A (not available)", and "unknown/not specified".
    parts = list(filter(None, map(fold, _SEPARATORS.split(item))))
    return len(parts) > 1 and all(map(_is_phrase, parts))


def _is_phrase(text: str) -> bool:
    if text in _FOLDED or _SENTENCES.fullmatch(text):
        return True
    rests = (text.replace(place, " ", 1) for place in ("", *_FOLDED_PLACES) if place in text)
    return any(_VERB.sub("", " ".join(rest.split())) in _FOLDED for rest in rests)


class _Spelling(IntEnum):
    """Role of a word at one place of a text, the strongest first."""

    FIRST = auto()
    """Name with which a text begins."""
    OWN_LABEL = auto()
    """Nothing: it stands directly before or after the attribute's name."""
    NAME = auto()
    ALONE = auto()
    """Nothing: it follows another label, or is not a word of a sentence."""
    IN_SENTENCE = auto()
    """Name, by its capital in a sentence: "ships to NA and EU"."""
    UNCLEAR = auto()


_READINGS = {
    _Spelling.FIRST: Reading.VALUE,
    _Spelling.OWN_LABEL: Reading.NOTHING,
    _Spelling.NAME: Reading.VALUE,
    _Spelling.ALONE: Reading.NOTHING,
    _Spelling.IN_SENTENCE: Reading.VALUE,
    _Spelling.UNCLEAR: Reading.UNCLEAR,
}


def _as_name(name: str, label: str, texts: Iterable[str]) -> Reading:
    """Read a capitalised word for nothing, which is a name if a text spells it as one."""
    anyhow = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    places = [(text, *place.span()) for text in texts for place in anyhow.finditer(text)]
    surroundings = {
        (text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW], start <= _WINDOW)
        for text, start, end in places
        if text[start:end] == name
    }
    if surroundings:
        return _READINGS[min(_spelling(*surrounding, label) for surrounding in surroundings)]
    return Reading.UNCLEAR if places else Reading.NOTHING


def _spelling(before: str, behind: str, has_begun: bool, label: str) -> _Spelling:
    """Return the role of a word between these texts; `has_begun`: the text begins with `before`."""
    is_first = has_begun and not before.strip(_OUTER)
    before, behind = before.rpartition("\n")[2], behind.partition("\n")[0]
    is_labelled = before.rstrip(" \"'“”(").endswith(_LABELS)
    if label and _is_its_label(before, behind, label, is_labelled):
        return _Spelling.OWN_LABEL
    left_word, right_word = _first_group(_WORD_BEFORE.search(before)), _first_group(_WORD_BEHIND.match(behind))
    left, right = left_word.casefold(), right_word.casefold()
    if is_labelled or left in _COPULAS:
        return _Spelling.ALONE
    if right == "of" or _is_property(right) or _is_property(left):
        return _Spelling.UNCLEAR
    if right and not right_word[0].islower():
        if right in _NO_NAME_BEHIND:
            return _Spelling.UNCLEAR
        if is_first:
            return _Spelling.FIRST
        # In a title every word has a capital: of "Strap None Buckle Gold" it tells nothing.
        is_told = not left or left in _BEFORE_NAMES or left_word.islower()
        return _Spelling.NAME if is_told else _Spelling.UNCLEAR
    if left in _BEFORE_NAMES:
        return _Spelling.IN_SENTENCE
    return _Spelling.UNCLEAR if left or right else _Spelling.ALONE


def _is_its_label(before: str, behind: str, label: str, is_labelled: bool) -> bool:
    """Return whether the attribute's name is next to the word: "Brand None", "Brand name: None", "Unknown brand"."""
    folded = fold(before)
    if is_labelled and f" {label} " in f" {' '.join(folded.split()[-_LABEL_WORDS:])} ":
        return True
    if f" {folded}".endswith(f" {label}") and not before.rstrip().endswith(_ENDS_OF_PARTS):
        return True
    return behind[:1] in _JOINTS and f"{fold(behind)} ".startswith(f"{label} ")


def _is_property(word: str) -> bool:
    return word in _PROPERTIES or word.removesuffix("s") in _PROPERTIES


def _first_group(found: re.Match[str] | None) -> str:
    return found[1] if found else ""


_WITHOUT_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


def _lines(name: str) -> list[str]:
    """Return the lines of a file in this package, without comments."""
    lines = resources.files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _listed(name: str) -> frozenset[str]:
    """Return the phrases of a file in this package, folded, with umlauts and without."""
    phrases = [phrase for line in _lines(name) for phrase in line.rstrip(",").split(", ")]
    return frozenset(fold(each) for phrase in phrases for each in (phrase, phrase.translate(_WITHOUT_UMLAUTS)))


_FOLDED = _listed("absence_phrases.txt")
# The longest first.
_FOLDED_PLACES = tuple(sorted(_listed("absence_places.txt"), key=lambda place: (-len(place), place)))


def _sentences() -> re.Pattern[str]:
    known: dict[str, str] = {}
    whole = ""
    for line in _lines("absence_sentences.txt"):
        line = re.sub("<([A-Z_]+)>", lambda name: known[name[1]], line)
        if named := re.match("([A-Z_]+) = ", line):
            known[named[1]] = line[named.end() :]
        else:
            whole += line
    return re.compile(whole)


_SENTENCES = _sentences()
