"""Columns that are known by name: those of shops' exports and feeds, and of published catalogs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources

import pydantic
import yaml


@dataclass(frozen=True, slots=True)
class KnownFeed:
    """What the columns of a published form are for, the first that is filled of several.

    Attributes:
        id, category: columns; a category may be a path.
        fields: name in the prompt -> columns.
        signs: columns by which it is known.
        answers: columns that say outright what is to be extracted: nothing of them belongs in the prompt.
        tagged: columns that are lists of values, each with its language under this key.
        id_within: a column without which the id is of several rows.
    """

    name: str
    id: tuple[str, ...]
    category: tuple[str, ...]
    fields: dict[str, tuple[str, ...]]
    signs: tuple[str, ...]
    answers: tuple[str, ...] = ()
    tagged: str | None = None
    id_within: str | None = None

    def is_no_text(self, column: str) -> bool:
        """Whether a column, or a path into one, holds answers, or languages."""
        if self.tagged is not None and column.endswith(f".{self.tagged}"):
            return True
        return any(column == name or column.startswith((f"{name}.", f"{name}[")) for name in self.answers)


_FEEDS = pydantic.TypeAdapter(tuple[KnownFeed, ...]).validate_python(
    yaml.safe_load(resources.files(__package__).joinpath("known_feeds.yaml").read_text(encoding="utf-8"))
)


def known_feed(columns: Collection[str]) -> KnownFeed | None:
    """The published form that a file with these columns has."""
    folded = {name.casefold() for name in columns}
    return next((feed for feed in _FEEDS if {sign.casefold() for sign in feed.signs} <= folded), None)
