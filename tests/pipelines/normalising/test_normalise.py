"""Values in their attribute's own unit, vocabulary and form: what they become, and when they are left open."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute
from pipelines.normalising.measured_text import NORM_STATUSES, Normalised
from pipelines.normalising.normalise import Normaliser
from tests.examples import examples
from tests.tables import table

ROAST = [
    {"label": "Black", "id": "1", "synonyms": ["noir", "schwarz"]},
    {"label": "Aluminium", "id": "2"},
    "3-season",
    "4-season",
    {"label": "whole bean", "id": "g/1"},
    "scented",
    "Stainless steel",
]


def number(unit: Any, raw: str, *around: str) -> Normalised:
    """What a number becomes, at the places `before|after`."""
    evidence = [dict(zip(("before", "after"), each.split("|"), strict=True)) | {"match": "exact"} for each in around]
    return Normaliser(Attribute(name="a", type="number", unit=unit)).normalise(raw, evidence)


def text(raw: str, unit: Any = None, *around: str) -> Normalised:
    evidence = [dict(zip(("before", "after"), each.split("|"), strict=True)) | {"match": "exact"} for each in around]
    return Normaliser(Attribute(name="a", unit=unit)).normalise(raw, evidence)


@table(
    ("unit", "raw", "around", "norm"),
    [
        ("cm", "14", "| inches", "35.56"),
        ("cm", "14", '|"', "35.56"),
        ("cm", "14", "|インチの画面", "35.56"),
        ("m", "5.5", "| ft. cable", "1.6764"),
        ("cm", "5", "|' 6\" tall", "167.64"),
        ("kg", "4", "| lb 3 oz (1.9 kg)", "1.899418049"),
        ("cm", "40", "2 x | cm", "40"),
        ("cm", "10", "| x 20 x 30 cm", "10"),
        ("mm", "30", "10 x 20 x | cm", "300"),
        ("ml", "1.5", "| l", "1500"),
        ("ml", "32", "|oz bottle", "946.352946"),
        ("°C", "70", "| °F", "21.11111111"),
        ("g/m²", "80", "| gsm paper", "80"),
        ("g", "500", "Weight (g): |", "500"),
        ("mm", "20", "Maße in cm: 10 x | x 30", "200"),
        ("mm", "20", "長さ（cm）：|", "200"),
        ("mm", "20", "| (cm)", "200"),
        ("V", "220", "|/240 V", "220"),
        ("kg", "5", "from | to 8 kg", "5"),
        ("years", "18", "| months", "1.5"),
        ("h", "90", "| min", "1.5"),
        ("rpm", "1400", "| U/min", "1400"),
        ("Nm", "300", "| in-lb", "33.89544871"),
        ("ml", "500", "容量|ミリリットル", "500"),
        ("rpm", "1500", "| max RPM", "1500"),
    ],
)
def test_a_number_is_converted_by_what_stands_at_it(unit: str, raw: str, around: str, norm: str) -> None:
    found = number(unit, raw, around)
    assert (found.status, found.norm, found.unit) == ("ok", norm, unit)
    assert found.num == pytest.approx(float(norm))


@table(
    ("unit", "raw", "around", "status"),
    [
        ("cm", "14", ["| wide"], "ambiguous"),  # bare: inches or centimetres
        ("cm", "14", [], "ambiguous"),  # stands nowhere
        ("kg", "2", ["| l"], "conflict"),
        ("kg", "2", ["| l", "| kg"], "ok"),  # the litres are another thing's
        ("cm", "10", ["| cm", "| in"], "ambiguous"),
        ("°C", "180", ["|° oven"], "ambiguous"),
        ("cm", "2", ["| x 40 cm"], "ambiguous"),  # two pieces, or a size
        ("ml", "6", ["| x 500 ml"], "ambiguous"),  # a count
        ("cm", "6", ["5' |\" tall"], "ambiguous"),  # a part of a quantity
        ("cm", "12", ["| in red"], "ambiguous"),
        ("kg", "2", ["| tons"], "ambiguous"),  # metric or short
        ({"want": "cm", "accept": ["in"]}, "5", ["| ft"], "conflict"),
        ({"want": "cm", "accept": ["in"]}, "5", ["| in"], "ok"),
        ("%", "28", ["|° angle"], "conflict"),  # both have no dimension
        ("rings", "5", ["| binder"], "no_rule"),
        ("cm", "1,500", ["| cm"], "ambiguous"),
        ("kg", "5", ["| are included"], "ambiguous"),  # pint has a unit "are"
        ("in", "6", ["| ft 2 in rug"], "ambiguous"),  # two inches, or not
        ("s", "1", ["| h 30 min 20 s"], "ambiguous"),  # three parts
        ("m", "2", ["| m and 50 cm"], "ambiguous"),  # two lengths, or one
        ("GB", "1", ["| TB and 512 GB"], "ok"),  # two disks
        ("mm", "12", ['the "Commuter |" shoe'], "ambiguous"),  # a name in quotes
    ],
)
def test_what_is_not_sure_is_left_open(unit: Any, raw: str, around: list[str], status: str) -> None:
    found = number(unit, raw, *around)
    assert found.status == status
    assert status == "ok" or found == Normalised(found.status)


@table(
    ("raw", "status"), [("28", "ambiguous"), ("21", "ok"), ("20-22", "ok"), ("20-28", "ambiguous"), ("1", "ambiguous")]
)
def test_what_is_not_plausible_is_left_open(raw: str, status: str) -> None:
    """28 inches are the wheel's."""
    frame = Attribute.model_validate({"name": "Frame", "type": "number", "unit": "cm", "plausible": [30, 65]})
    evidence = [{"before": "", "after": " inch", "match": "exact"}]
    assert Normaliser(frame).normalise(raw, evidence).status == status
    sized = Attribute.model_validate({"name": "Size", "unit": "cm", "plausible": [1, 100]})
    assert (
        Normaliser(sized).normalise("20 x 9 x 500 cm").status,
        Normaliser(sized).normalise("20 x 9 x 50 cm").status,
    ) == (
        "ambiguous",
        "ok",
    )
    with pytest.raises(ValueError, match="least, most"):
        Attribute.model_validate({"name": "Frame", "type": "number", "plausible": [65, 30]})
    with pytest.raises(ValueError, match="for numbers"):
        Attribute.model_validate({"name": "Frame", "plausible": [30, 65]})


@table(
    "raw",
    ["4006381333931", "0.1234567890123", "1234567890.5", "12345.678912", "98765432109876543", "1234567890" * 4 + "1"],
)
@table("unit", [None, "mm"])
def test_what_is_not_converted_is_not_rounded(raw: str, unit: str | None) -> None:
    assert number(unit, raw, "| mm").norm == raw
    assert text(f"{raw} mm", "mm").norm == f"{raw} mm"
    assert text(f"{raw} to 2{'0' * 40} mm", "mm").norm == f"{raw} to 2{'0' * 40} mm"


def test_what_is_converted_keeps_the_digits_that_the_text_has() -> None:
    assert number("kg", "4006381333931", "| g").norm == "4006381333.931"
    assert number("g", "4006381333.931", "| kg").norm == "4006381333931"
    assert number("h", "2", "| h 20 min").norm == "2.333333333"


def test_what_may_end_inside_of_a_number_is_left_open() -> None:
    evidence = [{"match": "ambiguous", "before": "", "after": " g"}]
    assert Normaliser(Attribute(name="a", type="number", unit="g")).normalise("500", evidence).status == "ambiguous"
    assert Normaliser(Attribute(name="a")).normalise("500 ml", evidence).status == "ambiguous"


@table(
    ("raw", "norm", "columns"),
    [
        ("14 inches", "35.56 cm", (35.56, None, None)),
        ('ca. 14"', "35.56 cm", (35.56, None, None)),
        ("10-12 cm", "10 to 12 cm", (None, 10, 12)),
        ("from 5 to 8 in", "12.7 to 20.32 cm", (None, 12.7, 20.32)),
        ("≥ 5 cm", "≥ 5 cm", (None, 5, None)),
        ("up to 1 m", "≤ 100 cm", (None, None, 100)),
        ("5+ cm", "≥ 5 cm", (None, 5, None)),
        ("10 x 20 x 30 mm", "1 x 2 x 3 cm", (None, None, None)),
        ('5.5" x 8.5"', "13.97 x 21.59 cm", (None, None, None)),
        ("10 (L) x 20 (W) cm", "L 10 x W 20 cm", (None, None, None)),
        ("1 1/2 in", "3.81 cm", (3.81, None, None)),
        ("1.500 m", None, None),
    ],
)
def test_a_text_with_a_unit_is_a_measure(raw: str, norm: str | None, columns: tuple[float | None, ...] | None) -> None:
    found = text(raw, "cm")
    if norm is None or columns is None:
        assert found == Normalised("ambiguous")
        return
    assert (found.status, found.norm, found.unit) == ("ok", norm, "cm")
    assert [found.num, found.min, found.max] == [pytest.approx(each) for each in columns]


@table("raw", ["5G", "4K", "3M", "Size 10", "2-in-1", "200", "A4", "12.05.2024", "501"])
def test_names_are_no_measures(raw: str) -> None:
    assert text(raw) == Normalised("ok", raw)


def test_texts_are_tidied_and_tell_their_quantity() -> None:
    assert text(" Cafe\u0301\u00a0 cr\u00e8me\u200b\n") == Normalised("ok", "Café crème")
    assert text("14 inches") == Normalised("ok", "14 inches", num=14, unit="in")
    assert text(" \u200b").status == "no_rule"


@table(
    ("raw", "label", "id_"),
    [
        ("BLACK", "Black", "1"),
        ("Noir", "Black", "1"),
        ("Schwarze", "Black", "1"),
        ("aluminum", "Aluminium", "2"),
        ("stainless-steel", "Stainless steel", None),
        ("stainles steel", "Stainless steel", None),
        ("wholebean", "whole bean", "g/1"),
        ("g/1", "whole bean", "g/1"),
        ("3 Season", "3-season", None),
    ],
)
def test_a_member_is_found_by_what_texts_call_it(raw: str, label: str, id_: str | None) -> None:
    assert Normaliser(Attribute(name="a", type="enum", values=ROAST)).normalise(raw) == Normalised("ok", label, id=id_)


@table(("raw", "norm"), [("true", "true"), ("Oui", "true"), ("nein", "false"), ("いいえ", "false"), ("perhaps", None)])
def test_booleans(raw: str, norm: str | None) -> None:
    assert Normaliser(Attribute(name="a", type="boolean")).normalise(raw).norm == norm


@table(
    ("raw", "norm"),
    [
        ("12.05.2024", "2024-05-12"),
        ("2024/5/12", "2024-05-12"),
        ("12 May 2024", "2024-05-12"),
        ("May 12th, 2024", "2024-05-12"),
        ("le 12 mai 2024", "2024-05-12"),
        ("12 de mayo de 2024", "2024-05-12"),
        ("2024年5月12日", "2024-05-12"),
        ("31/12/2024", "2024-12-31"),
        ("05/05/2024", "2024-05-05"),
        ("2024-05-12T10:00:00Z", "2024-05-12"),
        ("05/2024", "2024-05"),
        ("2024", "2024"),
    ],
)
def test_dates(raw: str, norm: str) -> None:
    assert Normaliser(Attribute(name="a", type="date")).normalise(raw) == Normalised("ok", norm)


@table(
    ("raw", "status"),
    [("05/06/2024", "ambiguous"), ("12.05.24", "ambiguous"), ("30.02.2024", "no_rule"), ("soon", "no_rule")],
)
def test_dates_that_are_left_open(raw: str, status: str) -> None:
    assert Normaliser(Attribute(name="a", type="date")).normalise(raw).status == status


UNITS = ["cm", "in", "kg", "ml", "°C", "h", "W", "%", "rings", "g/m²", "parsec", {"want": "cm", "accept": ["in"]}]
ATTRIBUTES = [
    *(Attribute(name="a", type="number", unit=unit) for unit in (*UNITS, None)),
    *(Attribute(name="a", unit=unit) for unit in (*UNITS, None)),
    Attribute(name="a", type="enum", values=ROAST),
    Attribute(name="a", type="boolean"),
    Attribute(name="a", type="date"),
]
PIECES = st.sampled_from(
    [
        *"0123456789.,-+/x '\"°%≥",
        " x ",
        " to ",
        "in",
        "cm",
        "ft",
        "kg",
        "oz",
        "½",
        "1/2",
        "°C",
        " and ",
        "年",
        "月",
        "May",
    ]
)
TEXTS = st.text(max_size=20) | st.lists(PIECES, max_size=8).map("".join)


@settings(max_examples=examples(400))
@given(st.sampled_from(ATTRIBUTES), TEXTS, TEXTS, TEXTS)
def test_any_text_is_normalised_or_left_open(attribute: Attribute, raw: str, before: str, after: str) -> None:
    """Never an exception; and what is normal is normal: it becomes itself."""
    found = Normaliser(attribute).normalise(raw, [{"match": "exact", "before": before, "after": after}])
    assert found.status in NORM_STATUSES
    assert (found.norm is not None) == (found.status == "ok")
    if found.norm is None:
        return
    around = [{"match": "exact", "before": "", "after": f" {found.unit}"}] if attribute.type == "number" else None
    if attribute.type == "number" and found.num is None:
        return  # a range, of which the table's number is empty
    again = Normaliser(attribute).normalise(found.norm, around)
    assert (again.status, again.norm, again.id) == ("ok", found.norm, found.id)
