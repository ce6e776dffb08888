"""What a run asked for is read again as it was."""

from __future__ import annotations

from pathlib import Path

from hpd_core import Attribute, CategorySchema, Member, Unit
from pipelines.store.asked_schemas import SCHEMAS_NAME, read_schemas, store_schemas
from pipelines.store.folders import Folder


def test_schemas_are_kept_with_ids_and_other_names(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    black = Member(label="Black", id="1", synonyms=("noir",), description="no light")
    attributes = (
        Attribute(name="Colour", id="c", type="enum", values=(black, Member(label="White")), aliases=("Color",)),
        Attribute(name="Width", type="number", unit=Unit(want="cm", accept=("in",))),
    )
    schemas = {
        "Bags": CategorySchema(category="Bags", attributes=attributes, id="lb-1", aliases=("Luggage > Bags",)),
        "Mugs": CategorySchema(category="Mugs", attributes=(Attribute(name="Brand"),)),
    }
    store_schemas(folder, schemas)
    assert read_schemas(folder) == schemas
    assert folder.read_json(SCHEMAS_NAME)["Mugs"] == [{"name": "Brand"}]
