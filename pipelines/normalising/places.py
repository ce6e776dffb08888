"""Where a value stands in a product's text, with a little of the text around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

CONTEXT = 32
"""Code points of the text that are kept before and after a value."""


class EvidencePlace(NamedTuple):
    """A place of a value.

    Attributes:
        match: as in the table's `evidence`.
        before, after: the text around it, `CONTEXT` code points at most each; "" where a run did not keep it.
    """

    match: str
    before: str
    after: str


def places_of(evidence: Iterable[Mapping[str, Any]] | None) -> tuple[EvidencePlace, ...]:
    """The places in a row's `evidence`, each once."""
    found = (EvidencePlace(each["match"], each.get("before") or "", each.get("after") or "") for each in evidence or ())
    return tuple(dict.fromkeys(found))
