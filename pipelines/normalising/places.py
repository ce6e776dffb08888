"""Places of a value in a product's text, with a little of the text around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

CONTEXT = 32
"""Number of code points of the text that are kept before and after a value."""


class EvidencePlace(NamedTuple):
    """Place of a value.

    Attributes:
        match: kind of match, as in the table's `evidence`.
        before, after: text around it, at most `CONTEXT` code points each; "" if a run did not keep it.
    """

    match: str
    before: str
    after: str


def places_of(evidence: Iterable[Mapping[str, Any]] | None) -> tuple[EvidencePlace, ...]:
    """Return the distinct places in a row's `evidence`."""
    found = (EvidencePlace(each["match"], each.get("before") or "", each.get("after") or "") for each in evidence or ())
    return tuple(dict.fromkeys(found))
