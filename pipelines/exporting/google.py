"""Google's Merchant feed: answers go into the attributes of its product data specification."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.errors import UsageError
from pipelines.exporting.rules import GOOGLE, GOOGLE_NAMES
from pipelines.exporting.targets import Asked, ShopWishes, Target, TargetColumn, find_place, folded_name


def google_name(name: str) -> str:
    """The attribute of Google's that a name means, if it is one's: "Age group" is age_group."""
    plain = folded_name(name).removeprefix("g:").replace(" ", "_")
    return GOOGLE_NAMES.get(plain, plain)


def _columns(header: Sequence[str], asked: Sequence[Asked], wishes: ShopWishes) -> list[TargetColumn]:
    """Attributes of other names have no column. Raises `UsageError` if `--columns` names none of Google's."""
    columns = []
    for each in asked:
        attribute = each.attribute
        wanted = wishes.columns.get(attribute.name)
        name = google_name(attribute.name if wanted is None else wanted)
        if wanted and name not in GOOGLE:
            raise UsageError(
                f"--columns {attribute.name}={wanted}: no attribute of Google's; there are {', '.join(GOOGLE)}"
            )
        if name not in GOOGLE or wanted == "":
            continue
        place = find_place(header, name)
        shown = name if place is None else header[place]
        columns.append(TargetColumn(each, shown, lambda _, rule=GOOGLE[name]: rule, place))  # type: ignore[misc]
    return columns


def _note(new: Sequence[TargetColumn]) -> str:
    return ""


GOOGLE_TARGET = Target("google", _columns, _note)
