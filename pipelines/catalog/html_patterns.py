"""Patterns of markup, character references, white space and raised numbers."""

from __future__ import annotations

import re

from pipelines.catalog.html_elements import names

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
