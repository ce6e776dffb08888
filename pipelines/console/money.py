"""Formatting of dollars, the same on every page and in every line."""

from __future__ import annotations

import math


def dollars(value: float) -> str:
    """Format dollars with three significant digits, or with cents from a dollar on and whole dollars from 1,000 on."""
    if value < 0:
        return f"-{dollars(-value)}"
    if value == 0 or round(value, 2) >= 1000:
        return f"${abs(value):,.0f}"
    return f"${value:,.2f}" if round(value, 3) >= 1 else f"${three_digits(value)}"


def three_digits(value: float) -> str:
    """Format a number with three significant digits, zeros included: 0.160, 0.0329, 2.61, 35.7."""
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{decimals}f}" if decimals <= 8 else f"{value:.2g}"
