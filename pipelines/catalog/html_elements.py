"""HTML elements, grouped by their effect on the text around them."""

from __future__ import annotations

import re


def names(text: str) -> frozenset[str]:
    """Return the set of names in space-separated `text`."""
    return frozenset(text.split())


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
