"""Patterns of markup, character references, white space and raised numbers."""

from __future__ import annotations

import re


def names(text: str) -> frozenset[str]:
    """Return the set of names in space-separated `text`."""
    return frozenset(text.split())


_BARE_ATTRIBUTE = (
    r"(?:allowfullscreen|async|autofocus|autoplay|checked|compact|contenteditable|controls|defer|disabled|download"
    r"|draggable|hidden|href|inert|ismap|itemscope|loop|multiple|muted|nohref|noshade|novalidate|nowrap|open|playsinline"
    r"|readonly|required|reversed|selected|\w+-[\w-]*)"
)
# "<i 10 cm but width>" is text that was never escaped.
ATTRIBUTES = re.compile(
    rf"""(?:[\s/"']++{_BARE_ATTRIBUTE}(?=[\s/]|\Z))*+[\s/"']*+(?:\Z|[\w:@.*\#()\[\]-]+\s*=)""",
    re.IGNORECASE | re.VERBOSE,
)
# What a cut may have left of an attribute's name.
ATTRIBUTE_NAMES = names(
    "align alt bgcolor border cellpadding cellspacing class color colspan content dir face height href hspace id "
    "itemprop itemscope itemtype lang name rel role rowspan scope size src srcset start style tabindex target title "
    "type valign value vspace width"
)

_NAME = r"[a-zA-Z][a-zA-Z0-9]*(?:[:-][\w:-]*)?"
_ENTITY_TEXT = r"""
    &(?P<again>(?:amp;)*)(?:
        \#(?:(?P<decimal>\d{1,7})|[xX](?P<hex>[0-9a-fA-F]{1,6}));?
        | (?P<entity>[a-zA-Z][a-zA-Z0-9]*)(?P<named>;)?)
    """
ENTITY = re.compile(_ENTITY_TEXT, re.VERBOSE)
# Each alternative begins with a character of its own: such a pattern is searched for fast. The number of attributes is
# limited, or a text of many tags inside each other's quotes is read to its end from each of them.
MARKUP = re.compile(
    rf"""
    <(?:
        (?P<close>\\?/)?(?P<name>{_NAME})(?=[\s/>]|\Z|(?(close)<))
        (?:>
           | (?P<attributes>(?:[^<>=]*+=(?:\s*+(?:"[^"]*"|'[^']*'))?+){{0,60}}+[^<>=]*+)>
           | (?P<loose>[^<>]*)> | (?P<cut>\s*/?|\s+[\w:@.-]+\s*(?:=[^<>]*)?)\Z | (?(close)(?=<)|(?!)))
        | (?P<hidden>
            !--(?:-?>|.*?(?:--!?>|\Z)) | !\[CDATA\[
            | !doctype\b[^<>]*> | !\[(?:if|else|endif)\b[^<>]*> | \?[a-z](?:[^<]*?\?>|[^<>]*>)
          )
        | (?P<stump>/?\Z)
      )
    | {_ENTITY_TEXT.strip()}
    | \]\]>
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
ASSIGNMENT = re.compile(r"\s+[\w:@.-]+\s*=")
CLOSED = re.compile(r"<\\?/([a-z]\w*-[\w:-]*)", re.IGNORECASE)
# Taken without a semicolon where nothing else is markup; others are mostly the end of something: "&section" of a URL.
CORE_ENTITIES = frozenset(("amp", "lt", "gt", "quot", "nbsp", "copy", "reg", "deg"))
SPACES, ZERO_WIDTH = " \t\n\r\f\v\u00a0", "\u00ad\u200b\u2060\ufeff"
# Some exports write a line end between two tags in letters.
RUN = re.compile(
    rf"(?P<space>[{SPACES}]+|(?<![^\s>])(?:\\r)?\\n(?=\s*(?:\\n|\Z)))|[{ZERO_WIDTH}]+"
    rf"|(?P<text>\\?[^{SPACES}{ZERO_WIDTH}\\]*(?:[ ][^{SPACES}{ZERO_WIDTH}\\]+)*)"
)
# A line of text with at most one space in each place is copied at once.
LINE_OF_TEXT = re.compile(rf"( ?)([^{SPACES}{ZERO_WIDTH}\\]+(?:[ ][^{SPACES}{ZERO_WIDTH}\\]+)*+)( ?)")
STYLE_TAG = r"</?(?:b|em|font|i|small|span|strong|u)\b[^<>]*>"
RAISED_END = re.compile(r"</sup\s*>", re.IGNORECASE)
MAX_RAISED = 200  # characters between the tags
RAISED = re.compile(r"[+\-−–]?\d+(?:[.,]\d+)*[+\-−–]?|n", re.IGNORECASE)
DECIMAL = re.compile(r"[+\-−–]?\d+[.,]\d+")
FRACTION = re.compile(r"\d+\s*[/⁄∕]\s*\d+")
BAR = re.compile(
    rf"(?:{STYLE_TAG}|\s)*(?:[/⁄∕]|&(?:frasl|sol|#0*47|#0*8260|#x0*2f|#x0*2044);)(?:{STYLE_TAG}|\s)*"
    rf"(?P<lower><sub\b[^<>]*>(?:{STYLE_TAG}|\s)*)?\d",
    re.IGNORECASE,
)
SUPERSCRIPT = str.maketrans("0123456789+-−–nN", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻ⁿⁿ")
TEN = re.compile(r"(?<!\d)10\Z")


# Elements by what they do to the text around them; those that do nothing are known all the same.
LINES = names(
    "address article aside blockquote body br caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li listing main menu nav noframes "
    "ol optgroup option p pre search section summary table tbody tfoot thead title tr ul"
)
CELLS = names("td th")
OBJECTS = names("audio button canvas embed iframe img input meter object picture progress select video")
INLINE = names(
    "a abbr acronym applet area b base basefont bdi bdo big blink cite code col colgroup data datalist del dfn em font "
    "frame i ins kbd label link map mark marquee meta nobr noembed noscript output param q rp rt ruby s samp script "
    "slot small source span strike strong style sub sup svg template textarea time track tt u var wbr"
)
ELEMENTS = LINES | CELLS | OBJECTS | INLINE
"""Elements that HTML has or had."""
# Those that set a text apart from what it touches: old and new prices, small digits behind a price. Where they begin or
# end, two numbers must not become one; next to what was struck out, nor two words.
STRUCK = names("del ins s strike")
APART = STRUCK | names(
    "a abbr acronym big cite code data dfn kbd label output q rp rt ruby samp slot small sub sup time var"
)
VOID_ELEMENTS = names("area base br col embed frame hr img input link meta param source track wbr")
"""Elements without content and closing tag."""
# Their content is not shown; it goes on to their closing tag, whatever stands in it.
UNSEEN = {
    name: re.compile(rf"</{name}\b", re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "script", "style", "svg", "template", "title")
}
# Whose closing tag may be left out, or that may be all that is left of a field that was cut.
TELLING_ALONE = names("br dd dt hr li p td th tr wbr")
TELLING_FIRST = TELLING_ALONE | names("body center div dl em font h1 h2 h3 h4 h5 h6 html ol span strong table ul")
TEXT_ELEMENTS = TELLING_FIRST | names("article b blockquote i section u")
"""Elements whose names hardly mean anything else."""
OFFICE = re.compile(r"(?:o|v|w|m|x|st\d):\w+")  # elements that word processors add

NBSP, SPACE, CELL, LINE = "\u00a0", " ", " | ", "\n"
GAPS = dict.fromkeys(LINES, LINE) | dict.fromkeys(CELLS, CELL) | dict.fromkeys(OBJECTS, SPACE)
# Most tags are one of these: what it is to the text, and how much deeper it goes into elements of lines.
PLAIN_TAGS = {
    f"<{slash}{name}>": (GAPS.get(name, ""), (-1 if slash else 1) if name in LINES - VOID_ELEMENTS else 0)
    for name in ELEMENTS - APART - UNSEEN.keys()
    for slash in ("", "/")
}
STRENGTH = {"": 0, NBSP: 1, SPACE: 2, CELL: 3, LINE: 4}
