"""Matching of texts to members of an enum: by label, synonym or id, and else by the nearest spelling.

    NOIR, "nòir ", n-o-i-r        the same letters: capitals, accents, spaces and signs that join words do not count
    blacks, schwarze              the same word with the ending of a plural or of a gender
    aluminum for aluminium        a misspelling of a long word (see `misspellings`)

Numbers and meaningful signs must be the same in all of them. Two equally near members make the text ambiguous.

Detection of names that are the same but for one misspelling.

Different words may also be few letters apart: plain and plaid, polyether and polyester, striped and stripped, silicon
and silicone, polyamide and polyimide, interior and inferior. So only mistakes that hardly ever give another word count,
in words of at least eight letters, between their first three letters and their last:

    a letter too many or too few     aluminum, rechargable, stainles
    two neighbours exchanged         stainlses
    s and z                          sterilised

Never one letter for another, never an ending, never two mistakes, and only in one word of a name.

Numbers and signs of a text, which must agree if two texts are to be the same.

-5 °C is not 5 °C, 1.5 L not 15 L, 12" not 1/2", C++ not C. But "3-season" is "3 Season", and "1,5 L" is "1.5 L": a sign
between words, or between a word and a number, only joins them. A sign that no word follows belongs to the word before
it, despite space in between: "A +" is "A+", and "B -" is not "B".
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache

from hpd_core import Member
from hpd_core.plain_data import Vocabulary
from hpd_core.text.near_names import fold_name
from pipelines.normalising.measured_text import AMBIGUOUS, NO_RULE, Normalised

_MAX_COMPARED = 60  # letters; a longer text is a sentence
_MIN_STEM = 4  # letters of a word that may have an ending
_MIN_INFLECTED = 6  # letters of a word that may have another ending than that of a plural
_ENDINGS = ("s", "es", "e", "en", "em")
_HISSING = ("s", "x", "z", "ch", "sh")

_YES = """
    true yes y ja oui sí si sim sì tak ano igen evet да так ναι kyllä joo jah da vorhanden included 1 x ✓ ✔ ☑ はい 有
    あり 是 예 있음 نعم כן
"""
_NO = """
    false no n nein non não nao nee nej nei nie ne nem hayır нет ні όχι ei nu 0 ✗ ✘ ☐ いいえ なし 無 无
    否 아니요 없음 لا לא
"""
_TRUTHS = {**dict.fromkeys(_YES.split(), "true"), **dict.fromkeys(_NO.split(), "false")}


def normalise_boolean(raw: str) -> Normalised:
    """Normalise a text to "true" or "false"; `NO_RULE` if it is neither."""
    truth = _TRUTHS.get(raw.strip().casefold())
    return NO_RULE if truth is None else Normalised("ok", truth)


_Name = tuple[str, tuple[str, ...]]
"""Folded name, and its numbers and signs."""


class MemberNames:
    """Members of one enum, by all names that texts may use."""

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members
        self._exact = Vocabulary(members)
        self._by_label = {member.label: member for member in members}
        self._by_id = _sole_ids(members)
        self._folded: dict[_Name, set[str]] = defaultdict(set)
        self._joined: dict[_Name, set[str]] = defaultdict(set)
        for member in members:
            for name in (member.label, *member.synonyms):
                folded, signs = name_and_signs(name)
                self._folded[folded, signs].add(member.label)
                self._joined[folded.replace(" ", ""), signs].add(member.label)
        # A catalog writes the same few texts.
        self.find = lru_cache(maxsize=10_000)(self._find)

    def _find(self, raw: str) -> Normalised:
        label = self._exact.label(raw)
        if label is not None:
            return self._ok(self._by_label[label])
        if (text := raw.strip()) in self._by_id:
            member = self._by_id[text]
            return AMBIGUOUS if member is None else self._ok(member)
        folded, signs = name_and_signs(raw)
        labels = self._folded.get((folded, signs)) or self._joined.get((folded.replace(" ", ""), signs))
        labels = labels or self._nearest(folded, signs)
        if not labels:
            return NO_RULE
        return self._ok(self._by_label[next(iter(labels))]) if len(labels) == 1 else AMBIGUOUS

    def _nearest(self, folded: str, signs: tuple[str, ...]) -> set[str]:
        if len(folded) > _MAX_COMPARED:
            return set()
        inflected = (self._folded.get((name, signs), ()) for name in _inflected(folded))
        if found := {label for labels in inflected for label in labels}:
            return found
        near = (
            self._folded[name, signs]
            for length in (len(folded) - 1, len(folded), len(folded) + 1)
            for name, others in self._misspelt.get((folded[:SAME_BEGINNING], length), ())
            if others == signs and is_misspelt(folded, name)
        )
        return {label for labels in near for label in labels}

    @cached_property
    def _misspelt(self) -> Mapping[tuple[str, int], list[_Name]]:
        """Names with a word long enough to be recognised misspelt, by their first letters and length."""
        found: dict[tuple[str, int], list[_Name]] = defaultdict(list)
        for folded, signs in self._folded:
            if may_be_misspelt(folded) and len(folded) <= _MAX_COMPARED:
                found[folded[:SAME_BEGINNING], len(folded)].append((folded, signs))
        return dict(found)

    @staticmethod
    def _ok(member: Member) -> Normalised:
        return Normalised("ok", member.label, id=member.id)


def name_and_signs(text: str) -> _Name:
    """Return the folded name and the signs, which must be equal in two texts that name one member."""
    text = one_form(text)
    return fold_name(text), written_signs(text)


def _sole_ids(members: tuple[Member, ...]) -> Mapping[str, Member | None]:
    """Return the members by id; None for an id that several have."""
    found: dict[str, Member | None] = {}
    for member in members:
        if member.id is not None:
            found[member.id] = None if member.id in found else member
    return found


def _inflected(folded: str) -> Iterator[str]:
    """Yield the name with an ending added to its last word, or removed from it."""
    for ending in _ENDINGS:
        if _takes_ending(folded, ending):
            yield folded + ending
        if folded.endswith(ending) and _takes_ending(folded.removesuffix(ending), ending):
            yield folded.removesuffix(ending)


def _takes_ending(name: str, ending: str) -> bool:
    """Return whether the ending gives a plural or gender of the same word: "prints", not "printer"; "schwarze", not
    "stripe" or "silicone"; not "brass" from "bras"."""
    word = name.rpartition(" ")[2]
    if not word.isalpha() or len(word) < _MIN_STEM:
        return False
    if ending == "s":
        return not word.endswith(_HISSING)
    if ending == "es" and word.endswith(_HISSING):
        return True
    return len(word) >= _MIN_INFLECTED and not word.endswith(("e", "n", "h") if ending == "e" else "e")


SAME_BEGINNING = 3
"""Number of letters that must agree at the beginning."""
_MIN_LETTERS = 8


def may_be_misspelt(name: str) -> bool:
    """Return whether the name has a word that is long enough."""
    return any(len(word) >= _MIN_LETTERS for word in name.split(" "))


def is_misspelt(one: str, other: str) -> bool:
    """Return whether two different folded names are the same but for one mistake in one word."""
    words, others = one.split(" "), other.split(" ")
    if len(words) != len(others):
        return False
    different = [pair for pair in zip(words, others, strict=True) if pair[0] != pair[1]]
    return len(different) == 1 and _is_misspelt_word(*different[0])


def _is_misspelt_word(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if len(short) < _MIN_LETTERS or not (short.isalpha() and long.isalpha()) or len(long) - len(short) > 1:
        return False
    place = next((index for index, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short))
    if place < SAME_BEGINNING:
        return False
    if len(long) > len(short):
        # A letter more at the end is another ending, unless it doubles the last one.
        return short[place:] == long[place + 1 :] and (place < len(short) or long[-1] == short[-1])
    is_exchanged = short[place : place + 2] == long[place : place + 2][::-1] and short[place + 2 :] == long[place + 2 :]
    is_s_or_z = {short[place], long[place]} == {"s", "z"} and short[place + 1 :] == long[place + 1 :]
    return place + 1 < len(short) and (is_exchanged or is_s_or_z)


_FORMS = str.maketrans(
    {
        **dict.fromkeys("−‐‑‒–—", "-"),
        **dict.fromkeys("⁄∕", "/"),
        **dict.fromkeys("″”“", '"'),
        **dict.fromkeys("′’", "'"),
        **dict.fromkeys("×✕✖", "x"),
        "º": "°",
        "℃": "°C",
        "℉": "°F",
    }
)
_SPACED_MINUS = re.compile(r"\A\s*-\s+(?=\d)")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s*([-/:])\s*(?=\d)")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d+),(\d{1,2})(?![\d.,])")
_SPACED_SIGNS = re.compile(
    r"""
    (?<=[^\W\d_])\s*[+\#](?:\s*[+\#])*(?!\s*\w)  # C ++; in "black + white" it joins words
    | (?<=\d)\s*\+(?:\s*\+)*                     # 8 +
    | (?<=\d)\s+'(?!\w)                          # 5 '
    | (?<=[^\W_])\s*-(?:\s*-)*+(?=\W*\Z)         # B -
    """,
    re.VERBOSE,
)
_TOKEN = re.compile(
    r"""
    (?:(?<!\w)[-.,]+)?\d+(?:[-.,/:']+\d+)*  # a number with its sign, a fraction, a range, a ratio
    | (?<=\d)(?:"|'(?!\w)) | (?<=\d\s)"      # inches, feet
    | (?<=[^\W\d_])[+\#]+(?!\w)             # C++, A+
    | [%‰°#±≥≤<>=~≈$€£¥]
    | (?<=\d)\++ | \+(?=\s*\d)              # 8+, +5
    | (?<=[^\W_])-+(?=\W*\Z)                # B-, 0-; "T-Shirt" and "Damen- und Herren" only join
    """,
    re.VERBOSE,
)


def one_form(text: str) -> str:
    """Return the text with one form of each sign that has several, and without space before one that ends a word."""
    text = unicodedata.normalize("NFKC", text.translate(_FORMS)).translate(_FORMS)
    text = _SPACED_MINUS.sub("-", text.replace(">=", "≥").replace("<=", "≤").replace("''", '"'))
    return _SPACED_SIGNS.sub(lambda found: "".join(found[0].split()), text)


def written_signs(text: str) -> tuple[str, ...]:
    """Return the numbers, as written, and the meaningful signs of a text in `one_form`, in order."""
    if text.isascii() and text.replace(" ", "").isalpha():
        return ()
    tight = _DECIMAL_COMMA.sub(r"\1.\2", _BETWEEN_DIGITS.sub(r"\1", text))
    return tuple(_TOKEN.findall(tight))


@lru_cache(maxsize=128)
def member_names(members: tuple[Member, ...]) -> MemberNames:
    """Return the names of a vocabulary, made once for all attributes that have it: categories share vocabularies."""
    return MemberNames(members)
