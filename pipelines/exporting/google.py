"""Google's Merchant feed: answers go into the attributes of its product data specification."""

from __future__ import annotations

from collections.abc import Sequence

from hpd_core import Attribute
from pipelines.errors import UsageError
from pipelines.exporting.product_details import PRODUCT_DETAIL
from pipelines.exporting.rules import GOOGLE, GOOGLE_DETAILS, GOOGLE_NAMES
from pipelines.exporting.targets import ShopWishes, Target, TargetAsked, TargetColumn, find_place, folded_name
from pipelines.exporting.value_forms import Rule


def google_name(name: str) -> str:
    """Return the name of Google's attribute that a name means, if there is one: "Age group" is age_group."""
    plain = folded_name(name).removeprefix("g:").replace(" ", "_")
    return GOOGLE_NAMES.get(plain, plain)


def _columns(header: Sequence[str], asked: Sequence[TargetAsked], wishes: ShopWishes) -> list[TargetColumn]:
    """Return the columns; attributes that are not Google's become details of the product.

    Raises `UsageError` if `--columns` names a column that is not Google's.
    """
    columns = []
    for each in asked:
        attribute = each.attribute
        wanted = wishes.columns.get(attribute.name)
        name = google_name(attribute.name if wanted is None else wanted)
        if wanted and name not in (*GOOGLE, PRODUCT_DETAIL):
            raise UsageError(
                f"--columns {attribute.name}={wanted}: no attribute of Google's; there are {', '.join(GOOGLE)}, "
                f"{PRODUCT_DETAIL}"
            )
        if wanted == "":
            continue
        is_detail = name not in GOOGLE
        name = PRODUCT_DETAIL if is_detail else name
        place = find_place(header, name)
        shown = name if place is None else header[place]
        rule = _detail_rule if is_detail else lambda _, rule=GOOGLE[name]: rule
        columns.append(TargetColumn(each, shown, rule, place, detail=attribute.name if is_detail else None))
    return columns


def _detail_rule(attribute: Attribute) -> Rule:
    return GOOGLE_DETAILS["number" if attribute.type == "number" else "text"]


GOOGLE_TARGET = Target("google", _columns, has_meanings=True)
