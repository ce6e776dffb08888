"""Known columns of shops' exports and feeds, and of published catalogs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources

import pydantic
import yaml


@dataclass(frozen=True, slots=True)
class KnownFeed:
    """Purposes of the columns of a published form. Of several columns, the first that is filled is used.

    Attributes:
        id, category: candidate columns; a category may be a path.
        fields: name in the prompt -> candidate columns.
        signs: columns that identify the form.
        answers: columns that hold the values to extract, and must not be in the prompt.
        tagged: key of the language in columns that are lists of values with a language each.
        id_within: column without which the id is not unique.
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
        """Return whether a column, or a path into one, holds answers or languages."""
        if self.tagged is not None and column.endswith(f".{self.tagged}"):
            return True
        return any(column == name or column.startswith((f"{name}.", f"{name}[")) for name in self.answers)


_FEEDS = pydantic.TypeAdapter(tuple[KnownFeed, ...]).validate_python(
    yaml.safe_load(resources.files(__package__).joinpath("known_feeds.yaml").read_text(encoding="utf-8"))
)


def known_feed(columns: Collection[str]) -> KnownFeed | None:
    """Return the published form of a file with these columns, or None."""
    folded = {name.casefold() for name in columns}
    return next((feed for feed in _FEEDS if {sign.casefold() for sign in feed.signs} <= folded), None)
