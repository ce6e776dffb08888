"""Akeneo's codes of units, and how texts write the same unit.

Akeneo's measurement families are public; what is not here (a family of one's own) keeps its code, in small letters.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpd_core import Unit

SYMBOLS: Mapping[str, Mapping[str, str]] = {
    "Length": {
        "MILLIMETER": "mm",
        "CENTIMETER": "cm",
        "METER": "m",
        "INCH": "in",
        "FEET": "ft",
        "DECIMETER": "dm",
        "KILOMETER": "km",
        "YARD": "yd",
        "MILE": "mi",
    },
    "Weight": {
        "GRAM": "g",
        "KILOGRAM": "kg",
        "OUNCE": "oz",
        "POUND": "lb",
        "MILLIGRAM": "mg",
        "TON": "t",
    },
    "Volume": {
        "MILLILITER": "ml",
        "CENTILITER": "cl",
        "LITER": "l",
        "CUBIC_CENTIMETER": "cm³",
        "CUBIC_METER": "m³",
        "CUBIC_MILLIMETER": "mm³",
        "DECILITER": "dl",
        "GALLON": "gal",
        "PINT": "pt",
        "OUNCE": "fl oz",
        "CUBIC_INCH": "in³",
        "CUBIC_FOOT": "ft³",
    },
    "Area": {
        "SQUARE_CENTIMETER": "cm²",
        "SQUARE_METER": "m²",
        "SQUARE_MILLIMETER": "mm²",
        "SQUARE_INCH": "in²",
        "SQUARE_FOOT": "ft²",
        "SQUARE_KILOMETER": "km²",
    },
    "Power": {"WATT": "W", "KILOWATT": "kW", "MILLIWATT": "mW", "MEGAWATT": "MW"},
    "Voltage": {"VOLT": "V", "MILLIVOLT": "mV", "KILOVOLT": "kV"},
    "Intensity": {"AMPERE": "A", "MILLIAMPERE": "mA"},
    "ElectricCharge": {"MILLIAMPEREHOUR": "mAh", "AMPEREHOUR": "Ah", "COULOMB": "coulomb"},
    "Resistance": {"OHM": "ohm", "KILOHM": "kohm", "MEGOHM": "Mohm"},
    "Capacitance": {"FARAD": "farad", "MICROFARAD": "µF", "NANOFARAD": "nF", "PICOFARAD": "pF"},
    "Frequency": {"HERTZ": "Hz", "KILOHERTZ": "kHz", "MEGAHERTZ": "MHz", "GIGAHERTZ": "GHz"},
    "Energy": {"JOULE": "J", "KILOJOULE": "kJ", "CALORIE": "cal", "KILOCALORIE": "kcal"},
    "Temperature": {"CELSIUS": "°C", "FAHRENHEIT": "°F", "KELVIN": "K"},
    "Duration": {
        "SECOND": "s",
        "MINUTE": "min",
        "HOUR": "h",
        "DAY": "days",
        "WEEK": "weeks",
        "MONTH": "months",
        "YEAR": "years",
        "MILLISECOND": "ms",
    },
    "Speed": {
        "METER_PER_SECOND": "m/s",
        "KILOMETER_PER_HOUR": "km/h",
        "MILE_PER_HOUR": "mph",
    },
    "Pressure": {"BAR": "bar", "PASCAL": "Pa", "HECTOPASCAL": "hPa", "MILLIBAR": "mbar", "PSI": "psi"},
    "Angle": {"DEGREE": "°", "RADIAN": "rad"},
    "Brightness": {"LUMEN": "lm", "NIT": "nit"},
    "Decibel": {"DECIBEL": "dB"},
    "Force": {"NEWTON": "N", "KILONEWTON": "kN"},
    "Binary": {
        "BYTE": "B",
        "KILOBYTE": "KB",
        "MEGABYTE": "MB",
        "GIGABYTE": "GB",
        "TERABYTE": "TB",
        "BIT": "bit",
    },
}
"""Measurement family -> code -> as texts write it."""


def unit_of(family: str, code: str) -> Unit | None:
    """The unit of a metric attribute; None where it names none. Texts may have any that can be made it."""
    if not code:
        return None
    # A copy of a standard family, under a name of one's own, has its codes.
    codes = SYMBOLS.get(family) or next((each for each in SYMBOLS.values() if code in each), {})
    return Unit(want=codes.get(code, code.lower()))
