"""Numbers in product texts: what is one, where it stands, and what it is worth there."""

from __future__ import annotations

import time
from decimal import Decimal
from itertools import pairwise

from babel import Locale
from babel.numbers import format_decimal
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpd_core.text.numbers import find_numbers, read_number, settle
from tests.examples import examples
from tests.tables import table


def found(*texts: str) -> list[tuple[str, ...]]:
    """Of every number the text of it and what it may be worth."""
    return [
        (text[number.start : number.end], *(format(worth, "f") for worth in number.worths))
        for text, numbers in zip(texts, find_numbers(texts), strict=True)
        for number in numbers
    ]


@table(
    ("text", "expected"),
    [
        # Separators that are decided by themselves.
        ("₹ 1,00,000 or 12,34,567.50", [("1,00,000", "100000"), ("12,34,567.50", "1234567.50")]),
        ("1’500 g, 1'250.50", [("1’500", "1500"), ("1'250.50", "1250.50")]),
        ("10 000 mAh", [("10 000", "10000")]),
        ("1,5 l; 3.3500 l; 1234,567 l", [("1,5", "1.5"), ("3.3500", "3.3500"), ("1234,567", "1234.567")]),
        (".33 l, ,05 l", [(".33", "0.33"), (",05", "0.05")]),
        (",5 l; Coffee ,10 oz", [(",5", "0.5", "5"), (",10", "0.10", "10")]),
        ("1.500,- € and 5.–", [("1.500", "1500"), ("5", "5")]),
        # Signs.
        ("−20 °C", [("−20", "-20")]),
        ("offset: -7, gain: +5", [("-7", "-7"), ("+5", "5")]),
        ("tea -12 pieces", [("-12", "12", "-12")]),
        ("a long - 5 inch", [("5", "5")]),
        ("20 ±0.5 mm", [("20", "20"), ("0.5", "0.5")]),
        # Fractions and powers.
        ("½ inch, 1½, 2 ¼, 3-½", [("½", "0.5"), ("1½", "1.5"), ("2 ¼", "2.25"), ("3-½", "3.5")]),
        ('1 1/2" and 1-1/2 and 1 and 1/2', [("1 1/2", "1.5"), ("1-1/2", "1.5"), ("1 and 1/2", "1.5")]),
        ("24/7, 220/240 V", [("24/7", "24", "7"), ("220/240", "220", "240")]),
        ("30.5cmx45cmx7cm, IP6x7p", [("30.5", "30.5"), ("45", "45"), ("7", "7")]),
        ("EU 36/38/40", [("36/38/40", "36", "38", "40")]),
        ("1e3 Hz, 2.5e6 Hz, 1.500e3", [("1e3", "1000"), ("2.5e6", "2500000"), ("1.500e3", "1500")]),
        ("2.5×10^6, 3 x 10⁻², 10⁶", [("2.5×10^6", "2500000"), ("3 x 10⁻²", "0.03"), ("10⁶", "1000000")]),
        ("5.3 million, 1,5 Mio., 2万毫安", [("5.3 million", "5300000"), ("1,5 Mio.", "1500000"), ("2万", "20000")]),
        ("20k mAh", [("20", "20", "20000")]),
        # Several numbers.
        ("10x20x30 cm, 2×, x2", [("10", "10"), ("20", "20"), ("30", "30"), ("2", "2"), ("2", "2")]),
        ("5V/3A, 12oz, 30-day", [("5", "5"), ("3", "3"), ("12", "12"), ("30", "30")]),
        ("1,5,10 and 3,697,00", [("1,5,10", "1", "5", "10"), ("3,697,00", "3", "697", "0", "3697.00")]),
        ("5'11\"", [("5'11", "5", "11")]),
        # Wholes that are no number.
        ("10-12 inch, 10–12, 10 - 12", [("10-12",), ("10–12",), ("10 - 12",)]),
        ("10 to 12, 10 bis 12, 10 à 12, 10...12", [("10 to 12",), ("10 bis 12",), ("10 à 12",), ("10...12",)]),
        ("-20 to +60 °C, -20-60 °C", [("-20 to +60",), ("-20-60",)]),
        ("12 - 10", [("12 - 10", "12", "10")]),
        ("12.05.2024, 2024-05-12, 5/12/2024", [("12.05.2024",), ("2024-05-12",), ("5/12/2024",)]),
        ("12:30, 16:9, 1.2.3, 192.168.1.1", [("12:30",), ("16:9",), ("1.2.3",), ("192.168.1.1",)]),
        ("+49 30 1234567", [("+49 30 1234567",)]),
        ("0800 123 456", [("0800 123 456",)]),
        ("978-3-16-148410-0, 1/4-20 UNC", [("978-3-16-148410-0",), ("1/4-20",)]),
        ("E27, B12, A12.5, WH-1000XM4, 12V3A, 3rd, 2ème, v1.2, 123-A45, x_5", []),
        ("1·5 l; 10 ~500 g; 5~10", [("1·5",), ("10", "10"), ("500", "500"), ("5~10",)]),
        ("5² m", []),
        (
            "2er-Pack, 1er, 934 000 t, $13 009 million",
            [("2", "2"), ("934 000", "934000"), ("13 009 million", "13009000000")],
        ),
        (
            "a 1/4 inch, 1⁄2 tsp, 12.8–13.0 TeV, 11,11.11",
            [("1/4", "0.25"), ("1⁄2", "0.5"), ("12.8–13.0",), ("11,11.11",)],
        ),
        ("Ø12, #5, No.5, 約10000mAh", [("12", "12"), ("5", "5"), ("5", "5"), ("10000", "10000")]),
        ("１，２５０．５ｇ ١٬٥٠٠٫٥ ३", [("１，２５０．５", "1250.5"), ("١٬٥٠٠٫٥", "1500.5"), ("३", "3")]),
        ("1e999, " + "9" * 500, [("1e999",), ("9" * 500,)]),
        ("9" * 9000 + " 1/2; " + "9" * 9000 + "½; 10" + "⁰" * 9000, [("9" * 9000 + " 1/2",), ("9" * 9000 + "½",)]),
        # Words and signs that multiply.
        ("9" * 305 + " billion", [("9" * 305 + " billion",)]),
        ("2 dozen, 3 mil", [("2", "2", "24"), ("3", "3", "3000")]),
        ("3만원, 2千, 5百円, 5천만원", [("3만", "30000"), ("2千", "2000"), ("5百", "500"), ("5천만", "50000000")]),
        ("1億2000万, 12만 5,000원", [("1億2000万", "120000000"), ("12만 5,000", "125000")]),
        ("2千克, 5千瓦, 4万向轮", [("2", "2"), ("5", "5"), ("4", "4")]),
        (
            "3조각, 512兆, 3兆円",
            [("3", "3", "3000000000000"), ("512", "512", "512000000000000"), ("3兆", "3000000000000")],
        ),
        ("1万2億, 1万2000-3000円", [("1万2億",), ("1万2000-3000",)]),
        # Signs in words, and dashes with a space behind.
        ("minus 18 °C, bis minus 20 Grad, 零下18度", [("minus 18", "-18"), ("minus 20", "-20"), ("零下18", "-18")]),
        ("10 minus 5, au moins 20 °C", [("10", "10"), ("minus 5", "5", "-5"), ("moins 20", "20", "-20")]),
        ("keeps − 18 °C; t: −18 °C", [("− 18", "18", "-18"), ("−18", "-18")]),
        # Ranges with the unit at both ends.
        ("10mm-12mm, 5%-10%, 20°C-30°C", [("10mm-12",), ("5%-10",), ("20°C-30",)]),
        ("-20 °C to 5 °C, 2 million - 3 million", [("-20 °C to 5",), ("2 million - 3",)]),
        # Months; and what a fraction may be a part of.
        ("Lot 1/2024, 12/2024, 1/4000 s", [("1/2024",), ("12/2024",), ("1/4000", "0.00025")]),
        ("a box of 100 1/4 inch screws", [("100 1/4", "100.25", "100", "0.25")]),
        # Other apostrophes, and letters that nobody sees.
        ("CHF 1´500, 1`500.50, 1ʼ500", [("1´500", "1500"), ("1`500.50", "1500.50"), ("1ʼ500", "1500")]),
        ("a 1\u200b500 g, \u200e-20 °C", [("1\u200b500", "1500"), ("-20", "-20")]),
        # Years and sizes that a comma parts.
        ("2006,2007", [("2006,2007", "2006.2007", "2006", "2007")]),
        ("Weight: 1,5; 1,05", [("1,5", "1.5", "1", "5"), ("1,05", "1.05")]),
    ],
)
def test_wholes(text: str, expected: list[tuple[str, ...]]) -> None:
    assert found(text) == expected


@table(
    ("texts", "expected"),
    [
        # By the unit.
        (["Nordpol 5,000 mAh"], "5000"),
        (["1.500 g"], "1500"),
        (["$1,500"], "1500"),
        (["１，５００ｇ"], "1500"),
        # By the other numbers of the product, in whatever field.
        (["2.412 GHz", "weighs 1.5 kg"], "2.412"),
        (["1,125 inch", "1.250,75 €"], "1.125"),
        (["1.500 kg", "1,5 l"], "1500"),
        (["1.125", "0.5 mm"], "1.125"),
        (["1.500 kg, 1'200 W, schwarz, das Gewicht"], "1.500"),
        # What has no unit may be a version, a time, a date, a list, or a phone.
        (["1.500 kg Traglast, geöffnet ab 09.00 Uhr"], "1500"),
        (["1.500 kg Traglast, Tel. 0.711"], "1500"),
        (["1,500 kg load, for Honda 2006,2007"], "1500"),
        # By the language.
        (["the load is 1,500 kg"], "1500"),
        (["der Wert ist 1,500"], "1.500"),
        # Contradicted, or not told: a version has a dot everywhere.
        (["the router with 2.412 GHz"], None),
        (["the pin is 1.125 inch"], None),
        (["Gewicht 1,250 kg mit Box"], None),
        (["Gewicht mit the size 1,250 kg"], None),
        (["1.500"], None),
        (["net weight of the flour 1.500 g"], None),
        (["2.412 GHz", "Bluetooth 5.3"], None),
        (["1.500 g", "1,5 l", "2.5 kg"], None),
        (["el peso es 1.500"], None),
    ],
)
def test_a_lone_separator_is_decided_by_the_products_text(texts: list[str], expected: str | None) -> None:
    first, *_ = found(*texts)
    digits = first[0].replace("，", ",").translate({0xFF10 + digit: str(digit) for digit in range(10)})
    group, decimals = digits.replace(",", "").replace(".", ""), digits.replace(",", ".")
    assert first[1:] == ((expected,) if expected is not None else (group, decimals))


@table(
    ("text", "worths"),
    [
        ("capacité 10 500 mAh, noir", ("10500",)),
        ("ёмкость: 12 500 мАч", ("12500",)),
        ("the bank 10 500 mAh", ("10500", "10", "500")),
        ("coque iPhone 13 128 Go avec", ("13128", "13", "128")),
    ],
)
def test_a_space_may_part_groups_or_numbers(text: str, worths: tuple[str, ...]) -> None:
    assert found(text)[0][1:] == worths


LOCALES = ["en", "de", "fr", "it", "sv", "pl", "ru", "de_CH", "en_IN", "ja", "pt", "tr"]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.decimals(-10_000_000, 10_000_000, places=2).filter(lambda number: number % 1 != 0),
    st.sampled_from(LOCALES),
)
@example(Decimal("-1234567.5"), "en_IN")
@example(Decimal("999.99"), "fr")
def test_what_a_locale_writes_is_read_back(number: Decimal, locale: str) -> None:
    """With decimals and a unit a number is decided by itself, and decides the next one."""
    written = format_decimal(number, locale=locale)
    (first, second) = found(f"value: {written} kg", f"next: {format_decimal(12345, locale=locale)} W")
    assert (first[0], *map(Decimal, first[1:])) == (written, number)
    assert Decimal(second[1]) == 12345
    assert Locale.parse(locale).number_symbols["latn"]["decimal"] not in second[0]


pieces = st.lists(
    st.sampled_from(
        [*"0123456789", ".", ",", " ", "-", "−", "/", "x", ":", "'", "½", "e3", "k", "g", " to ", "\n", "+", "٣"]
    ),
    max_size=16,
).map("".join)


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(pieces, min_size=1, max_size=3))
def test_numbers_do_not_overlap_and_none_is_inside_another(texts: list[str]) -> None:
    for text, numbers in zip(texts, find_numbers(texts), strict=True):
        for left, right in pairwise(numbers):
            assert left.end <= right.start
        for number in numbers:
            assert 0 <= number.start < number.end <= len(text)
            assert len(set(number.worths)) == len(number.worths)
            assert all(worth.is_finite() for worth in number.worths)
            # No digit stands beside it that is not its own.
            assert not text[number.start - 1 : number.start].isdecimal()
            assert not text[number.end : number.end + 1].isdecimal()


@settings(max_examples=examples(500), deadline=None)
@given(pieces)
def test_a_number_that_is_read_is_plain_or_open(text: str) -> None:
    number = read_number(text)
    if number is not None and read_number(number) != number:
        raise AssertionError(f"{text!r} is read as {number!r}, and that as {read_number(number)!r}")
    if number is not None and settle(number, []) == number:
        assert Decimal(number).is_finite()
        assert "e" not in number.lower()


HOSTILE = ["1 000 ", "1-", "1,1", "1/2 ", "1x", "A-1", "a -1\n", "iPhone 13 128 Go ", "1.500 ", "between 1 "]


@table("piece", HOSTILE)
def test_work_grows_with_the_text_and_no_faster(piece: str) -> None:
    def seconds(count: int) -> float:
        started = time.process_time()
        find_numbers([piece * count])
        return time.process_time() - started

    # Four times the text: what grows with its square takes sixteen times as long.
    assert min(seconds(8000) for _ in range(2)) < 10 * min(seconds(2000) for _ in range(2)) + 0.05
