"""Words and signs around digits that are a part of the number: "2 billion", "3만", "minus 18"."""

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
"""Not that of a kilogram (千克), of what is universal (万能), of what one makes (만들기)."""
_MONEY = "円元圆圓块원"

MINUS = re.compile(
    rf"(?<![^\W\d_])(?:(?P<sure>minus|minusz|mínusz|miinus|минус)|moins|menos|meno)[{SPACES}]\Z"
    rf"|(?P<below>零下|氷点下|マイナス|영하)[{SPACES}]?\Z|(?P<dash>(?<![^\s:=(\[<>≤≥~,;/])[-–][{SPACES}])\Z",
    re.IGNORECASE,
)
"""What may be a minus in front of a number; "au moins 20 °C" is at least that."""
MAX_MINUS = 12
MINUS_ENDS = frozenset("sSzZoOсС-–下ス하")
"""What the last or, before a space, the last but one character of a MINUS may be."""


def factor_behind(text: str, end: int) -> tuple[int, int, bool]:
    """What the words at `end` multiply a number by ("2 hundred thousand"), where they end, and whether they surely do.

    "20k mAh" are thousands, "14k gold" is not. Without any word it is 1.
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
    """Of ten, by a match of EASTERN_SIGN."""
    return sum({**_BELOW_MYRIAD, **_MYRIADS}[name] for name in sign.groups() if name)


def surely_multiplies(sign: str, behind: str) -> bool:
    """Whether a sign with `behind` behind it is one of thousands.

    Not sure: "3조각" are pieces, "5 천연" is of nature, "512兆" are megabytes.
    """
    if behind and behind in _MONEY:
        return True
    return sign[-1] in "万萬만億亿억" or (sign in ("百", "백", "千", "천") and not behind.isalpha())
