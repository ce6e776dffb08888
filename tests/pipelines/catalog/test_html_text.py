"""HTML is read as the text that it shows, and nothing else is touched."""

from __future__ import annotations

import html.parser
import itertools
import re
import time
import unicodedata
from html.entities import html5

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.catalog.html_text import ShownText, read_html
from tests.examples import examples
from tests.tables import table

# What it is, what it shows.
SHOWN = [
    # Elements: lines, items, cells, and those that do nothing.
    ("<p>Soft <b>cotton</b> shirt</p><p>Machine wash</p>", "Soft cotton shirt\nMachine wash"),
    ("one<br>two<br/>three<BR />four", "one\ntwo\nthree\nfour"),
    ("<ul><li>red<li>blue</ul>", "red\nblue"),
    ("<dl><dt>Colour<dd>red<dt>Size<dd>M</dl>", "Colour\nred\nSize\nM"),
    ("<table><tr><td>1</td><td>500 g</td></tr><tr><th>Size</th><td>M</td></tr></table>", "1 | 500 g\nSize | M"),
    ("<TR><TD>Weight<TD>5 kg<TR><TD>Size<TD>M", "Weight | 5 kg\nSize | M"),
    ("un<b>break</b>able, 100<i>g</i>", "unbreakable, 100g"),
    ('10<img src="x.png">20', "10 20"),
    # Attributes, whatever is in them.
    ("<p title=\"a > b\" class='x>y' data-x=1>text</p>", "text"),
    ('<a href="/x?a=1&b=2">link</a>', "link"),
    ('<p class="x>text without an end</p>', "text without an end"),
    ('<div title="5" x 3" panel">text</div>', "text"),
    # What is not shown.
    ("<style>p { color: red }</style>text", "text"),
    ("<script>if (a < b && c > d) x('<p>no</p>');</script>text", "text"),
    ("<script>if (a<!--b) c();</script>text", "text"),
    ("<p>a</p><script>let x = 'cut in <p>", "a"),
    ("<p>a<!-- 5 kg --> b</p><!-- <p>no</p> -->", "a b"),
    ("<!--[if mso]><p>no</p><![endif]--><p>yes</p>", "yes"),
    ("<![if !IE]>yes<![endif]>", "yes"),
    ("<p>a</p><!-- never closed", "a"),
    ("<!DOCTYPE html><html><head><title>no</title></head><body>yes</body></html>", "yes"),
    ('<svg viewBox="0 0 1 1"><title>icon</title><path d="M0"/></svg>yes', "yes"),
    ('<iframe src="x">no</iframe>yes', "yes"),
    ("<![CDATA[<p>5 kg</p>]]>", "5 kg"),
    ('<?xml version="1.0"?><p>yes</p>', "yes"),
    # Entities.
    ("Tom &amp; Jerry", "Tom & Jerry"),
    ("&frac12; inch, 5&deg;C, &euro;&nbsp;5, &quot;x&quot;, &apos;y&apos;", "½ inch, 5°C, €\u00a05, \"x\", 'y'"),
    ("&#39;&#x27;&#8211;&#x2013;", "''––"),
    ("&#150;&#153;", "–™"),  # as Windows-1252 has them
    ("&#xD83D;&#xDE00; &#55357;&#56832;", "😀 😀"),
    ("&#0; &#xD800; &#1114112;", "\ufffd \ufffd \ufffd"),
    ("Tom &amp Jerry, men&#39s", "Tom & Jerry, men's"),
    ("100&nbspg &NBSP;x &Amp; y", "100\u00a0g \u00a0x & y"),
    ("stain&shy;less", "stainless"),
    ("<p>stain\u00adless&#8203; steel</p>", "stainless steel"),
    ("a&#13;&#10;b", "a\r\nb"),
    ("&NotEqualTilde;", "≂̸"),
    # Escaped more than once.
    ("&lt;p&gt;Soft &amp;amp; warm&lt;/p&gt;", "Soft & warm"),
    ("&amp;lt;p&amp;gt;5&amp;nbsp;kg&amp;lt;/p&amp;gt;", "5\u00a0kg"),
    ("&lt;p&gt;Learn &amp;lt;br&amp;gt;&lt;/p&gt;", "Learn <br>"),
    ("AT&amp;amp;T", "AT&T"),
    ("Fish &amp;Chips", "Fish &Chips"),
    ("<p>a &lt; b &gt; c</p>", "a < b > c"),
    # Escaped beside real tags: it is there to be seen.
    ("<p>Learn &lt;br&gt; and &lt;b&gt;bold&lt;/b&gt;</p>", "Learn <br> and <b>bold</b>"),
    ("Learn &lt;td&gt;<br>now", "Learn <td>\nnow"),
    # Text with a "<" that nobody escaped does not vanish.
    ("Length <i 10 cm but width> 5 cm<br>", "Length <i 10 cm but width> 5 cm"),
    ("if a<b and c>d <br> x", "if a<b and c>d\nx"),
    ("<p hidden>a</p><input type=text disabled><p data-x>b</p>", "a\nb"),
    # Cut somewhere.
    ('<p>five</p> kg <a href="htt', "five\nkg"),
    ("<b>five</b> kg <stro", "five kg"),
    ("<b>five</b> kg<", "five kg"),
    ("oft cotton</b> shirt", "oft cotton shirt"),
    ("<p>Oak</p<p>Elm</p>", "Oak\nElm"),
    # What shops write.
    (
        '<meta charset="utf-8"><span data-mce-fragment="1">100% cotton</span><br data-mce-fragment="1">Peru',
        "100% cotton\nPeru",
    ),
    ("<!-- wp:paragraph -->\n<p>Wool.</p>\n<!-- /wp:paragraph -->\n<ul><li>500 g</li></ul>", "Wool.\n500 g"),
    ('<style>#x{a:b}</style><div data-content-type="html">&lt;p&gt;Steel&lt;/p&gt;</div>', "Steel"),
    ("<p>Size: 5<\\/p>\\n<p>Red<\\/p>", "Size: 5\nRed"),
    ("<script>//<![CDATA[\nvar a = '<b>';\n//]]></script>Oak", "Oak"),
    ('Oak <?php echo "x > y"; ?> Elm', "Oak Elm"),
    ('<p class=""a"">Oak</p><p style=“b”>Elm</p>', "Oak\nElm"),
    ("<table><tr><th colspan=2>Specs</th></tr><tr><td>W</td><td></td><td>5</td></tr></table>", "Specs\nW | 5"),
    # White space.
    ("<p>Soft\n   cotton</p>", "Soft cotton"),
    ("First line\nsecond line<br>third", "First line\nsecond line\nthird"),
    ("<p>a&nbsp; &nbsp;b</p><p>&nbsp;</p><p>5&nbsp;kg</p>", "a b\n5\u00a0kg"),
    ("<ul>\n\\n \t<li>9579 pieces</li>\n\\n</ul>\n\\n<span>soon</span>", "9579 pieces\nsoon"),
    ("<br>&nbsp;", ""),
    # Raised digits are not digits; over a line they are a fraction's.
    ("10<sup>9</sup>/g CFU, 10<sup>6</sup>/ml", "10⁹/g CFU, 10⁶/ml"),
    ("10<sup>&minus;3</sup> 10<sup>–3</sup> 10<sup>1234</sup>", "10⁻³ 10⁻³ 10¹²³⁴"),
    ("10<sup>6.5</sup> CFU, 1500<sup>1,2</sup>", "10^6.5 CFU, 1500¹,²"),
    ("5<sup>1/2</sup> inch, 5<sup>1⁄2</sup>, 5<sup>1&frasl;2</sup>", "5 1/2 inch, 5 1⁄2, 5 1⁄2"),
    ("10<sup>1</sup>&#x2044;<sub><b>2</b></sub>, 1<sup>1</sup><b>/</b><sub>2</sub>", "10 1⁄2, 1 1/2"),
    ("5<sup>½</sup> SO<sub>4</sub><sup>2-</sup> A<sup>+++</sup> 1<sup>2nd</sup>", "5½ SO4²⁻ A+++ 1 2nd"),
    ("10<sup>6<sup>2</sup></sup>, 10<sup>6</sup>5 x <b>10<sup>6", "10 6², 10⁶ 5 x 10 6"),
    # Elements that set numbers apart; those that only change the letters do not.
    ("<s>20</s>10 EUR<br>", "20 10 EUR"),
    ("5<small>99</small> €, 5<sub>99</sub>€, 5<small>.99</small>", "5 99 €, 5 99€, 5.99"),
    ("<a href='#3'>38</a><a href='#4'>40</a>, 100<a href='#n1'>1</a>", "38 40, 100 1"),
    ("1<b>0</b>0 1<span>0</span> 1<!-- -->0 CO<sub>2</sub>", "100 10 10 CO2"),
    ("<s>5</s>&#49;0", "5 10"),
    # As programs leave it.
    ("<p>yes <x-more>more</x-more></p>", "yes more"),
    ("<p>L\\XL cotton\\nylon</p>", "L\\XL cotton\\nylon"),
    ('<span itemprop="name"> &lt;Hidden2&gt; </span>', "<Hidden2>"),
    ("<p>List<T>, size <M>, <me@x.com></p>", "List<T>, size <M>, <me@x.com>"),
]

# In which there is no markup, whatever it looks like.
KEPT = [
    *(
        "a < b",
        "a<b",
        "a <b and c> d",
        "a<b>c",
        "1<2>0",
        "x<y>z",
        "if a<p && c",
        "<3",
        "<-",
        "<>",
        "< b >",
        "</3",
        "<",
        "</",
    ),
    *(
        "R&D",
        "Q&A",
        "&c",
        "&c.",
        "AT&T; B&W;",
        "a&b=1",
        "?a=1&copy=2&section=3",
        "salt & pepper",
        "&",
        "&;",
        "&#;",
        "&#x;",
    ),
    *("size <M>", "Sizes <S>, <M>, <L>", "<S>", "<x-large>", "<small> <medium>", "<none>", "<Brand>"),
    *("List<T>", "Map<String, List<Integer>>", "std::vector<int>", "Vec<i>", "Class<Object>"),
    *("<me@x.com>", "Ann <ann@b.org>", "<https://x.org>", "<mailto:me@x.com>", "<tel:123>"),
    *("**bold** > quote", "- a\n- b\n\n| x | y |", "`<div>` is a tag", "Learn the <table> tag", "a <script> tag"),
    *(
        "<<Name>>",
        "<<<Nonsense>>>",
        "A --> B <-- C <!-- D",
        "Weight <5kg, temp >10C",
        "{% if a < b %}",
        "[b]Oak[/b]",
        "head > shoulders > knees",
        "><",
        "title > body",
        "{{name}} <%= x %> <!x> <? x",
        "]]>",
        "L\\XL cotton\\nylon\\n",
        "wash &not bleach",
    ),
]


@table(("text", "shown"), SHOWN)
def test_markup_is_read_as_the_text_that_it_shows(text: str, shown: str) -> None:
    read = read_html(text, "auto")
    assert (text if read is None else read.text) == shown


@table("text", KEPT)
def test_what_is_no_markup_is_not_touched(text: str) -> None:
    assert read_html(text, "auto") is None


PIECES = (
    "<p>|</p>|<b>|</b>|<br>|<td>|</td>|<M>|<|>|&amp;|&lt;|&gt;|&nbsp;|&|;|<!--|-->|<script>|</script>|<sup>|</sup>|/|2|10"
    "|<s>|</s>|<sub>|.|&frasl;|−"
    "| |\n|\\n|word|=|\"|'|<a href=|<![CDATA[|]]>|&#39;|&#xD83D;|&#xDE00;|amp;|</|<li|é|\u00ad|\u00a0|😀"
)
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES.split("|")), max_size=20).map("".join), st.text("<>&;/abp! =\"'\n-#x2", max_size=30)
)


@given(TEXTS, st.sampled_from(["auto", "always"]))
@settings(max_examples=examples(400))
def test_every_character_has_its_place(text: str, mode: str) -> None:
    read = read_html(text, mode)  # type: ignore[arg-type]
    if read is None:
        return
    assert len(read.text) == len(read.starts) == len(read.ends)
    assert all(0 <= start < end <= len(text) for start, end in zip(read.starts, read.ends, strict=True))
    assert all(a <= b for a, b in itertools.pairwise(read.starts))
    assert all(a <= b for a, b in itertools.pairwise(read.ends))
    for char, start, end in zip(read.text, read.starts, read.ends, strict=True):
        # One that comes from one is that one, raised digits apart; all others are named or made.
        if end - start == 1 and char not in " |\n^⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ":
            assert text[start] == char
    assert len(read.text) <= len(text), "reading on and on comes to an end"


NUMBERS = st.integers(0, 9999).map(str)


@given(NUMBERS, st.sampled_from(["s", "strike", "del", "ins", "small", "sub", "sup", "a", "q"]), NUMBERS, NUMBERS)
@settings(max_examples=examples(200))
def test_numbers_that_touch_through_a_tag_never_become_one(before: str, name: str, inside: str, behind: str) -> None:
    text = _shown(f"{before}<{name} x=1><b>{inside}</b></{name}>{behind}")
    found = [unicodedata.normalize("NFKC", run) for run in re.findall("[0-9]+|[⁰¹²³⁴⁵⁶⁷⁸⁹]+", text)]
    assert found == [before, inside, behind]


@given(TEXTS)
@settings(max_examples=examples(400))
def test_what_was_read_is_read_as_it_is(text: str) -> None:
    shown = _shown(text)
    for _ in range(20):  # a text that was escaped more often than anybody does
        shown = _shown(shown)
    assert read_html(shown, "auto") is None


WORDS = st.text("abc ½é<&>\"'", min_size=1, max_size=8)
TREES = st.recursive(
    WORDS,
    lambda inner: st.tuples(
        st.sampled_from(["p", "b", "div", "span", "li", "em", "td"]), WORDS, st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(TREES, min_size=1, max_size=3))
@settings(max_examples=examples(200))
def test_whole_documents_are_read_as_another_parser_reads_them(trees: list[object]) -> None:
    markup = "<div>" + "".join(map(_markup, trees)) + "</div>"
    parser = _Words()
    parser.feed(markup)
    parser.close()
    # One round: text that looks like escaped markup is not what is compared.
    (read,) = [each for each in (read_html(markup.replace("&lt;", "&lang;"), "auto"),) if each is not None]
    assert "".join(read.text.replace("|", "").split()) == "".join(
        "".join(parser.found).replace("<", html5["lang;"]).split()
    )


def _markup(tree: object) -> str:
    if isinstance(tree, str):
        return html.escape(tree)
    assert isinstance(tree, tuple)
    name, title, inner = tree
    return f'<{name} title="{html.escape(title)}">{"".join(map(_markup, inner))}</{name}>'


class _Words(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)


@table(
    "text",
    [
        *(
            '<a x="' * 10_000,
            "<a x=\"<a y='" * 5_000,
            "<!--" * 15_000,
            "<script>" * 8_000 + "<p>",
            "<p>" + "]]>" * 20_000,
        ),
        *(
            "&" + "amp;" * 20_000,
            "&nbsp" * 15_000,
            "<" * 50_000,
            "<p " * 20_000,
            "<!doctype " * 8_000,
            "<p>" + "<sup>1" * 9_000,
        ),
        *(
            "<p>x</p><a " + '="<a "' * 40_000,
            "<p>x</p><a " + "=\"<a x='>'\"" * 15_000,
            "<p>x</p>" + "<M =' " * 20_000 + ">",
        ),
        *(
            "<p>" + " " * 50_000,
            "<svg a=1>" * 6_000,
            "<p>x" + "\n<" * 20_000,
            '<x ="y>" ' * 8_000,
            "<p>" + "\\n" * 20_000,
        ),
    ],
)
def test_no_text_takes_long(text: str) -> None:
    started = time.process_time()
    read_html(text, "auto")
    assert time.process_time() - started < 2


def _shown(text: str) -> str:
    read: ShownText | None = read_html(text, "auto")
    return text if read is None else read.text
