"""Hints of a text on its decimal sign: units, the words of its language, and how that language writes numbers.

The separators of each language come from CLDR, through Babel. The language of a text is inferred from frequent words
and letters alone: a product has twenty words, half of them names, and only comma or dot has to be decided. General
detectors (trained on sentences) are megabytes and guess if there is no evidence. This module then returns nothing. It
also returns nothing for a language that is written with both signs (Spanish).
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from babel import Locale

SPACES = " \u00a0\u202f\u2009"

WORDS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    resources.files(__package__).joinpath("words.toml").read_text("utf-8")
)
# Locales used for a language, if not just the one of its own name; if they differ, it says nothing.
_LOCALES = {"es": ("es", "es_419"), "pt": ("pt", "pt_PT")}
# Scripts, and letters that only some languages have: each language stands for all that write numbers alike.
_LETTERS = (
    ("ru", re.compile("[Ѐ-ӿ]")),
    ("el", re.compile("[Ͱ-Ͽ]")),
    ("ja", re.compile("[぀-ヿ㐀-鿿]")),
    ("ko", re.compile("[가-힣]")),
    ("th", re.compile("[ก-๛]")),
    ("he", re.compile("[א-ת]")),
    ("hi", re.compile("[ऀ-ॿ]")),
    ("vi", re.compile("[ạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹđ]")),
    ("de", re.compile("[äöüß]")),
    ("sv", re.compile("[åøæ]")),
    ("cs", re.compile("[čšžřěůťďňľĺŕąęłńśźżćőűğışțșăâîãõ]")),
    ("fr", re.compile("[èêëàùçœ]")),
)
_WORD = re.compile(r"[^\W\d_]{2,}|y")

_SIGNS_OF_MONEY = "€$£¥₹₽₺₩₴฿"
_UNIT = re.compile(rf"[{SPACES}-]?([^\W\d_]+[²³]?|[\"”″'′°%{_SIGNS_OF_MONEY}])")
_WORD_TOO = re.compile(rf"[{SPACES}](?:in|to|a)[{SPACES}][^\W\d_]")  # "1.5 in red"
_SIZES = {
    **{unicodedata.normalize("NFKC", name): size for size, names in WORDS["units"].items() for name in names.split()},
    **dict.fromkeys(_SIGNS_OF_MONEY, "small"),
}
_MONEY_BEFORE = re.compile(rf"(?:[{_SIGNS_OF_MONEY}]|\b(?:EUR|USD|GBP|CHF|INR|Rs\.?|kr))[{SPACES}]?\Z")


def unit_size(text: str, start: int, end: int) -> str | None:
    """Return the size of the unit of the number text[start:end]; None if there is no known unit.

    "small" if thousands of it are usual (grams, money), "whole" if thousandths are not (mAh, pages), "large" if both
    are (kg, inch, GHz).
    """
    match = _UNIT.match(text, end)
    if match and _WORD_TOO.match(text, end):
        match = None
    name = unicodedata.normalize("NFKC", match.group(1)).lower() if match else ""
    return "small" if _MONEY_BEFORE.search(text, max(0, start - 5), start) else _SIZES.get(name)


def decimal_signs(texts: Iterable[str]) -> frozenset[str]:
    """Return the decimal signs, "," and ".", of the texts' likely languages; empty without evidence."""
    votes: Counter[str] = Counter()
    for language, count in _languages(texts).items():
        for sign in _symbols(language, "decimal"):
            # A word that several languages of one sign share is one word.
            votes[sign] = max(votes[sign], count)
    most = max(votes.values(), default=0)
    return frozenset(sign for sign, count in votes.items() if count * 2 >= most)


def groups_with_spaces(texts: Iterable[str]) -> bool:
    """Return whether the texts' language puts spaces between thousands."""
    counts = _languages(texts)
    best = max(counts.values(), default=0)
    return bool(best) and all(_symbols(name, "group")[0].isspace() for name, count in counts.items() if count == best)


def _languages(texts: Iterable[str]) -> Counter[str]:
    words = [word for text in texts for word in _WORD.findall(text)]
    votes: Counter[str] = Counter()
    with_letters: dict[str, set[str]] = {}
    for word in dict.fromkeys(words):
        folded = word.lower()
        votes.update(_languages_of_word().get(folded, ()))
        if not folded.isascii():
            for language, letters in _LETTERS:
                if letters.search(folded):
                    with_letters.setdefault(language, set()).add(word)
                    break
    for language, found in with_letters.items():
        # One capitalised word may be a name of any country's.
        names_only = len(found) == 1 and next(iter(found))[0].isupper()
        votes[language] += 0 if names_only else len(found)
    return +votes


@cache
def _languages_of_word() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for language, words in WORDS["languages"].items():
        for word in words.split():
            found[word] = (*found.get(word, ()), language)
    return found


@cache
def _symbols(language: str, name: str) -> tuple[str, ...]:
    """Return CLDR's symbols of this name in all locales of the language."""
    locales = _LOCALES.get(language, (language,))
    return tuple(Locale.parse(locale).number_symbols["latn"][name] for locale in locales)
