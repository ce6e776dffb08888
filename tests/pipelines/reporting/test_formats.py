"""Numbers as people write them."""

from __future__ import annotations

from pipelines.reporting import formats


def test_numbers_as_people_write_them() -> None:
    assert [formats.usd(each) for each in (None, 0, 0.16, 0.0329, 0.000394, 1, 12.345, 12_345.6)] == [
        *("–", "$0", "$0.160", "$0.0329", "$0.000394", "$1.00", "$12.35", "$12,346"),
    ]
    assert [formats.hours(each) for each in (None, 0, 0.5, 59.94, 90, 3600, 5400, 720_000)] == [
        *("–", "0 s", "0.500 s", "59.9 s", "1.5 min", "1 h", "1.5 h", "200 h"),
    ]
    assert [formats.number(each) for each in (0, 5, 12_345, 2.6094, 35.71, 123.4, 0.00012)] == [
        *("0", "5", "12,345", "2.61", "35.7", "123.4", "0.000120"),
    ]
    assert [formats.usd(each) for each in (-0.17, -2, -12_345, -0.0)] == ["-$0.170", "-$2.00", "-$12,345", "$0"]
    assert [formats.share(each) for each in (0, 0.0001, 0.1234, 0.9994, 0.9996, 0.99999, 1 + 1e-12)] == [
        *("0%", "<0.1%", "12.3%", "99.9%", ">99.9%", ">99.9%", "100%"),
    ]
    assert formats.probability(0.001) == "<0.01"
    assert formats.size(5 * 2**20) == "5.0 MiB"
