"""Source of a mapped value in a row: a column, several joined, or a constant text."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from hpd_core.data.section import Section

PATH_SEPARATOR = ">"


class Mapped(Section):
    """A mapped value: a column's name alone, or one of `column`, `join` and `text`."""

    column: str | None = Field(
        None,
        description="a column, or a path into one that is nested: details.Brand, images[0].alt, variants.title (of "
        "each item), name[lang=en*].text (of those items); a column that has the whole name wins",
    )
    join: tuple[str, ...] | None = Field(None, min_length=1, description="several columns, those that are not empty")
    text: str | None = Field(None, min_length=1, description="the same text for every row")
    separator: str | None = Field(
        None,
        min_length=1,
        description="joins the columns of `join`, by default a space; of a category, what stands between the parts of "
        f"a path in `column` ({PATH_SEPARATOR!r} where only a level is given)",
    )
    level: int | None = Field(
        None, description="of a category's path, the part that counts: 1 is the first, -1 the last; by default all do"
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_column(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"column": value}
        if isinstance(value, dict) and isinstance(value.get("join"), str):
            return {**value, "join": (value["join"],)}
        if not isinstance(value, (dict, Mapped)):
            raise ValueError("the name of a column is needed (a number in quotes), or one of column, join and text")
        return value

    @model_validator(mode="after")
    def _check(self) -> Mapped:
        given = [name for name in ("column", "join", "text") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("one of column, join and text is needed")
        if self.separator is not None and self.text is not None:
            raise ValueError("separator has no meaning beside text")
        if self.level is not None and (self.column is None or self.level == 0):
            raise ValueError("level is for the path in a column: 1, 2, ... from the front, -1, -2, ... from the end")
        return self

    @model_serializer(mode="wrap")
    def _plain(self, handler: SerializerFunctionWrapHandler) -> Any:
        # A column alone is written as ever, and hashed so.
        data = {name: value for name, value in handler(self).items() if value is not None}
        return data["column"] if data.keys() == {"column"} else data

    def __str__(self) -> str:
        """Return the form used in messages."""
        return self.column or " + ".join(self.join or ()) or repr(self.text)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it is made of."""
        return (self.column,) if self.column is not None else self.join or ()

    @property
    def is_path(self) -> bool:
        """Whether its cell is the path of a category."""
        return self.column is not None and (self.separator is not None or self.level is not None)
