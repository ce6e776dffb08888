"""Feeds however they are written: answers stand within their items, and all else is as it was."""

from __future__ import annotations

import re
from pathlib import Path

import defusedxml.ElementTree
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema
from pipelines.catalog.feeds import item_values
from tests.pipelines.evaluating.made_runs import Row
from tests.pipelines.exporting.made_runs import exported, write_shop_run
from tests.tables import table

URI = "http://base.google.com/ns/1.0"
NS = f'xmlns:g="{URI}"'
SCHEMAS = {"A": CategorySchema(category="A", attributes=(Attribute(name="Brand"), Attribute(name="Color")))}
VALUES = {"Brand": "Té & <Co>", "Color": "red"}

_ELEMENTS = st.sampled_from(
    [
        *("<g:color/>", "<g:color />", '<g:color note="a/>"/>', "<g:color></g:color>", "<g:color> \n</g:color>"),
        *("<g:color><!-- none --></g:color>", "<g:color><![CDATA[]]></g:color>", "<g:color>blue</g:color>"),
        *("<g:color><v>blue</v></g:color>", "<g:brand/>", "<brand/>", "<brand>Own</brand>", "<c:color/>", "<g:mpn/>"),
        *("<g:price>5</g:price>", "<title><![CDATA[a <g:color/> > b]]></title>", "<!-- <g:brand/> -->", "<?x <a/>?>"),
        *("<g:shipping><g:color/><g:item/></g:shipping>", "<x/>", '<link href="/a>b"/>', "text", "&lt;g:color/&gt;"),
    ]
)
_GAPS = st.sampled_from(["", "\n\t", " "])
_ITEMS = st.lists(
    st.tuples(st.integers(0, 4), st.lists(_ELEMENTS, max_size=4), st.sampled_from(["item", "entry", "x:item"])),
    min_size=1,
    max_size=4,
)


def feed(items: list[tuple[int, list[str], str]], gap: str) -> str:
    texts = []
    for number, (place, elements, tag) in enumerate(items):
        own = f"<g:id>{gap}p{number}{gap}</g:id>"
        inner = gap.join([*elements[:place], own, *elements[place:]])
        texts.append(f"<{tag}>{gap}{inner}</{tag}>")
    body = gap.join(texts)
    return f'<rss {NS} xmlns:c="urn:c" xmlns:x="urn:x"><channel><title>a</title><g:color/>{body}</channel></rss>'


def without_answers(text: str) -> str:
    """A feed without brands and colors, and without the whitespace in front of them."""
    bare = re.sub(r"<(g:brand|g:color|brand)\b(?:[^>\"]|\"[^\"]*\")*/>", "", text)
    bare = re.sub(r"<(g:brand|g:color|brand)\b(?:[^>\"]|\"[^\"]*\")*>.*?</\1>", "", bare, flags=re.DOTALL)
    return re.sub(r"\s+", "", bare)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(items=_ITEMS, gap=_GAPS, overwrites=st.booleans())
def test_answers_stand_in_their_items(
    tmp_path_factory: pytest.TempPathFactory,
    items: list[tuple[int, list[str], str]],
    gap: str,
    overwrites: bool,
) -> None:
    folder = tmp_path_factory.mktemp("feed")
    path, out = folder / "feed.xml", folder / "new.xml"
    text = feed(items, gap)
    path.write_text(text, encoding="utf-8")
    rows = [Row(f"p{number}", VALUES, "", "A", number) for number in range(len(items))]
    uri = write_shop_run(folder / "run", path, "xml", "id", rows, schemas=SCHEMAS)
    result = exported(uri, "--to", "google", "--out", str(out), *(["--overwrite"] if overwrites else []))
    new = out.read_text(encoding="utf-8")
    assert without_answers(new) == without_answers(text)
    before, after = (
        [item_values(item) for item in list(defusedxml.ElementTree.fromstring(each)[0])[2:]] for each in (text, new)
    )
    kept = 0
    for old, filled in zip(before, after, strict=True):
        assert {name: value for name, value in filled.items() if name.split()[0] not in ("brand", "color")} == {
            name: value for name, value in old.items() if name.split()[0] not in ("brand", "color")
        }
        for name, answer in (("brand", VALUES["Brand"]), ("color", VALUES["Color"])):
            stood = any(old.get(name, "")) if isinstance(old.get(name), list) else bool(old.get(name))
            assert filled[name] == (old[name] if stood and not overwrites else answer)
            kept += stood and not overwrites
    assert sum(result["left_out"].values()) == kept


@table(
    ("text", "new"),
    [
        pytest.param(
            f"<rss {NS}><channel><item><g:id>b</g:id><g:color/><g:price>5</g:price></item></channel></rss>",
            f"<rss {NS}><channel><item><g:id>b</g:id><g:color>red</g:color><g:price>5</g:price></item></channel></rss>",
            id="an empty element in front of another",
        ),
        pytest.param(
            f"<rss {NS}><item><g:id>b</g:id><g:mpn/></item><item><g:id>c</g:id></item></rss>",
            f"<rss {NS}><item><g:id>b</g:id><g:mpn/><g:color>red</g:color></item><item><g:id>c</g:id></item></rss>",
            id="an empty element at the end",
        ),
        pytest.param(
            f'<feed xmlns="{URI}" xmlns:atom="http://www.w3.org/2005/Atom"><entry><id>b</id><atom:id>u</atom:id>'
            "</entry></feed>",
            f'<feed xmlns="{URI}" xmlns:atom="http://www.w3.org/2005/Atom"><entry><id>b</id><atom:id>u</atom:id>'
            "<color>red</color></entry></feed>",
            id="Google's namespace without a prefix",
        ),
        pytest.param(
            "<rss><item><id>b</id></item></rss>",
            f'<rss><item><id>b</id><g:color xmlns:g="{URI}">red</g:color></item></rss>',
            id="no namespace of Google's",
        ),
        pytest.param(
            f'<rss xmlns:g="urn:other"><item><id>b</id><x:t xmlns:x="{URI}"/></item></rss>',
            f'<rss xmlns:g="urn:other"><item><id>b</id><x:t xmlns:x="{URI}"/><g:color xmlns:g="{URI}">red</g:color>'
            "</item></rss>",
            id="a prefix that is bound elsewhere",
        ),
        pytest.param(
            f"<rss {NS}><item><g:id><![CDATA[ b ]]></g:id><g:color xml:lang='de'/></item></rss>",
            f"<rss {NS}><item><g:id><![CDATA[ b ]]></g:id><g:color xml:lang='de'>red</g:color></item></rss>",
            id="an empty element with attributes",
        ),
        pytest.param(
            f"<rss {NS}><item><g:id>b<!-- c --></g:id><g:color><!-- x --></g:color><g:color/></item></rss>",
            f"<rss {NS}><item><g:id>b<!-- c --></g:id><g:color><!-- x -->red</g:color></item></rss>",
            id="a comment in an empty element",
        ),
    ],
)
def test_where_an_answer_stands(tmp_path: Path, text: str, new: str) -> None:
    path, out = tmp_path / "feed.xml", tmp_path / "new.xml"
    path.write_text(text, encoding="utf-8")
    rows = [Row("b", {"Color": "red"}, "", "A", 0)]
    uri = write_shop_run(tmp_path / "run", path, "xml", "id", rows, schemas=SCHEMAS)
    exported(uri, "--to", "google", "--out", str(out))
    assert out.read_text(encoding="utf-8") == new
    defusedxml.ElementTree.parse(out)


@table("bad", ["\ufffe", "\x7f\uffff"])
def test_characters_that_xml_cannot_hold_are_left_out(tmp_path: Path, bad: str) -> None:
    path, out = tmp_path / "feed.xml", tmp_path / "new.xml"
    path.write_text(f"<rss {NS}><item><g:id>b</g:id></item></rss>", encoding="utf-8")
    rows = [Row("b", {"Brand": f"a{bad}c", "Color": "red\x0b\x85and\u2028blue"}, "", "A", 0)]
    uri = write_shop_run(tmp_path / "run", path, "xml", "id", rows, schemas=SCHEMAS)
    result = exported(uri, "--to", "google", "--out", str(out))
    assert result["left_out"] == {"characters that XML cannot hold": 1}
    (item,) = defusedxml.ElementTree.fromstring(out.read_bytes())
    assert item_values(item) == {"id": "b", "color": "red and blue"}
