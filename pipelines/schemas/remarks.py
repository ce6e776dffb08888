"""Remarks of `lint` and `diff` on a schema file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remark:
    """Remark on a category or, if `attribute` is set, on one attribute of it."""

    category: str
    attribute: str | None
    message: str

    def __str__(self) -> str:
        place = self.category if self.attribute is None else f"{self.category} > {self.attribute}"
        return f"{place}: {self.message}"
