"""Words and signs next to digits that belong to the number: "2 billion", "3만", "minus 18"."""

from __future__ import annotations

import re

from hpd_core.text.separators import SPACES

_WORD = re.compile(rf"[{SPACES}-]?(?P<word>[^\W\d_]+)\.?")
_FACTORS = {
    100: "hundred hundert",
    1000: """thousand tausend tsd tys tysiąc tysiące tysięcy mille duizend tusen tusind tisíc тыс тысяча тысячи
    тысяч""",
    10**5: "lakh lakhs",
    10**6: """million millions millionen mio mn mln millón millones milione milioni milhão milhões miljoen miljon
    miljoner millioner milion miliony milionów milionů milyon млн миллион миллиона миллионов""",
    10**7: "crore crores",
    10**9: """billion billions bn milliarde milliarden mrd mld milliard milliards miliardo miliardi miljard miljarder
    milliarder miliard miliardy miliardów milyar млрд миллиард миллиарда миллиардов""",
    10**12: "trillion trillions billionen billones",
}
_FACTOR_OF_WORD = {word: factor for factor, words in _FACTORS.items() for word in words.split()}
# A dozen may be what is counted, and a mil is a thickness, too.
_PERHAPS = {"dozen": 12, "dutzend": 12, "douzaine": 12, "docena": 12, "mil": 1000}

_MYRIADS = {"万": 4, "萬": 4, "만": 4, "億": 8, "亿": 8, "억": 8, "兆": 12, "조": 12}
_BELOW_MYRIAD = {"十": 1, "십": 1, "百": 2, "백": 2, "千": 3, "천": 3}
EASTERN_SIGNS = "".join((*_BELOW_MYRIAD, *_MYRIADS))
EASTERN_SIGN = re.compile(
    rf"[{SPACES}]?(?:(?P<below>[{''.join(_BELOW_MYRIAD)}])?(?P<myriad>[{''.join(_MYRIADS)}])(?![能用向들赫])"
    r"|(?P<alone>[百백千천])(?![克瓦米卡帕伏赫焦安升斤]))"
)
"""Sign of a power of ten, unless it begins a word: kilogram (千克), universal (万能), to make (만들기)."""
_MONEY = "円元圆圓块원"

MINUS = re.compile(
    rf"(?<![^\W\d_])(?:(?P<sure>minus|minusz|mínusz|miinus|минус)|moins|menos|meno)[{SPACES}]\Z"
    rf"|(?P<below>零下|氷点下|マイナス|영하)[{SPACES}]?\Z|(?P<dash>(?<![^\s:=(\[<>≤≥~,;/])[-–][{SPACES}])\Z",
    re.IGNORECASE,
)
"""Words and dashes before a number that may be a minus; "au moins 20 °C" means "at least"."""
MAX_MINUS = 12
MINUS_ENDS = frozenset("sSzZoOсС-–下ス하")
"""Possible last characters of a MINUS, its final space not counted."""


def factor_behind(text: str, end: int) -> tuple[int, int, bool]:
    """Return the factor of the words at `end` ("2 hundred thousand"), the offset of their end, and whether it is sure.

    "20k mAh" are thousands, "14k gold" is not. Without such a word the factor is 1.
    """
    factor = 1
    while match := _WORD.match(text, end):
        word = match.group("word").lower()
        times = _FACTOR_OF_WORD.get(word)
        if times is None:
            perhaps = 1000 if match.group() == "k" else _PERHAPS.get(word, 1)
            return (factor, end, True) if factor > 1 or perhaps == 1 else (perhaps, end, False)
        factor, end = factor * times, match.end()
    return factor, end, True


def power_of(sign: re.Match[str]) -> int:
    """Return the power of ten of a match of EASTERN_SIGN."""
    return sum({**_BELOW_MYRIAD, **_MYRIADS}[name] for name in sign.groups() if name)


def surely_multiplies(sign: str, behind: str) -> bool:
    """Return whether `sign` followed by `behind` is a multiplier (万, 億), not the start of a word.

    Not sure: "3조각" are pieces, "5 천연" means natural, "512兆" are megabytes.
    """
    if behind and behind in _MONEY:
        return True
    return sign[-1] in "万萬만億亿억" or (sign in ("百", "백", "千", "천") and not behind.isalpha())
