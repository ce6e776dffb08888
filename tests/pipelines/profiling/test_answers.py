"""What a model names is read in whatever form it writes it; what names nothing is no answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.profiling.asked_attributes import Named, read_attributes
from tests.tables import table

COLOUR = Named("Colour", "the main one, such as red, blue", False, None, ("red", "blue"))
WEIGHT = Named("Net weight", "of one piece", True, "g", ())

XML = """
<attribute id="1">
  <name>Colour</name>
  <description>the main one, such as red, blue</description>
  <datatype>categorical</datatype>
  <unit></unit>
  <values>red | blue</values>
</attribute>
<attribute id="2">
  <name>Net weight</name>
  <description>of one piece</description>
  <datatype>numerical</datatype>
  <unit>g</unit>
</attribute>
"""
JSON = """[{"name": "Colour", "description": "the main one, such as red, blue", "datatype": "categorical",
 "values": ["red", "blue"]}, {"name": "Net weight", "description": "of one piece", "type": "number", "unit": "g"}]"""


@table(
    "text",
    [
        XML,
        f"Here they are:\n```xml\n<attributes>{XML}</attributes>\n```",
        f"<think><attribute><name>Draft</name></attribute></think>{XML}",
        XML.upper()
        .replace("COLOUR", "Colour")
        .replace("THE MAIN ONE, SUCH AS RED, BLUE", "the main one, such as red, blue")
        .replace("RED | BLUE", "red | blue")
        .replace("NET WEIGHT", "Net weight")
        .replace("OF ONE PIECE", "of one piece")
        .replace(">G<", ">g<"),
        XML.replace("<name>Colour</name>", "<name>**Colour**</name>").replace("red | blue", "red; blue"),
        XML.replace("</attribute>", "").replace("</datatype>", ""),
        XML + "<attribute id='3'><name>colour</name></attribute>",
        JSON,
        f'{{"attributes": {JSON}}}',
        f"```json\n{JSON}\n```",
    ],
)
def test_any_form_is_read(text: str) -> None:
    assert read_attributes(text) == [COLOUR, WEIGHT]


@given(st.text(st.sampled_from('<>/abnmetriu "={}[]:,|\n'), max_size=200))
def test_nothing_that_a_model_writes_breaks_it(text: str) -> None:
    for text_around in (text, f"<attribute>{text}</attribute>", f'{{"name": {text}}}'):
        assert all(each.name for each in read_attributes(text_around))


def test_an_attribute_that_was_cut_is_none() -> None:
    whole = "<attribute><name>Colour</name><datatype>categorical</datatype></attribute>"
    for cut in ("<attribute><name>Net wei", "<attribute id='2'><name>Size</name><values>S|M|X", "<attribute"):
        assert [each.name for each in read_attributes(whole + cut, is_cut=True)] == ["Colour"]
    assert [each.name for each in read_attributes(whole, is_cut=True)] == ["Colour"]
    assert [each.name for each in read_attributes(whole + "<attribute><name>Size")] == ["Colour", "Size"]
