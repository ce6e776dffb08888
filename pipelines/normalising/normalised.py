"""Result of normalising a value, and its status."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

NormStatus = Literal["ok", "ambiguous", "conflict", "no_rule"]
NORM_STATUSES: tuple[NormStatus, ...] = get_args(NormStatus)


class Normalised(NamedTuple):
    """Value in its attribute's own form; all but `status` is None unless that is "ok".

    Attributes:
        status: "ok"; "ambiguous": the text can be read in several ways; "conflict": it contradicts the attribute (a
            weight in litres); "no_rule": no rule can read it (in no vocabulary, of an unknown unit).
        norm: the value as a text: a plain decimal, a member's label, "true", an ISO date, a tidied text.
        num: the number, in `unit`.
        unit: the attribute's unit; if it has none, that of the text.
        min, max: ends of a range, in `unit`; one of them alone for "at least 5".
        id: id of the enum's member.
    """

    status: NormStatus
    norm: str | None = None
    num: float | None = None
    unit: str | None = None
    min: float | None = None
    max: float | None = None
    id: str | None = None


AMBIGUOUS = Normalised("ambiguous")
CONFLICT = Normalised("conflict")
NO_RULE = Normalised("no_rule")

NORMALISED_COLUMNS = ("norm_status", "value_norm", "value_num", "unit", "value_min", "value_max", "value_id")
"""Columns of the attribute table, in the order of `Normalised`."""
