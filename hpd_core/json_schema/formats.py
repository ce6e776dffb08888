"""Formats of texts: patterns by which they are decoded, and checks of those that jsonschema alone does not check."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import regex
from jsonschema import FormatChecker

_DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_ZONE = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_DAYS = "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOURS = "([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
FORMATS: Mapping[str, tuple[str, str]] = {
    "date": (rf"^{_DATE}$", "a date as YYYY-MM-DD"),
    "time": (rf"^{_TIME}{_ZONE}$", "a time as HH:MM:SSZ"),
    "date-time": (rf"^{_DATE}T{_TIME}{_ZONE}$", "a date and time as YYYY-MM-DDTHH:MM:SSZ"),
    "duration": (rf"^P([0-9]+W|{_DAYS}(T{_HOURS})?|T{_HOURS})$", "as P1DT2H"),
    "email": (r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9]([A-Za-z0-9-]*)(\.[A-Za-z0-9-]+)+$", "an e-mail address"),
    "uri": (r"^[A-Za-z][A-Za-z0-9+.-]*:[^ \"<>\\^`{|}]+$", "a URI"),
    "hostname": (rf"^{_LABEL}(\.{_LABEL})*$", "a host name"),
    "uuid": (r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", "a UUID"),
}
"""Pattern of each format, and its description for the model. Other formats are described by their names."""

_LONGEST_LABEL = 63  # RFC 1123; an automaton that counts is too large
FORMAT_CHECKER = FormatChecker()


def _is_of_format(name: str, value: object) -> bool:
    if not isinstance(value, str):
        return True
    is_short = name != "hostname" or max(map(len, value.split("."))) <= _LONGEST_LABEL
    return is_short and regex.fullmatch(FORMATS[name][0], value) is not None


for _name in ("time", "date-time", "duration", "uri", "hostname"):
    FORMAT_CHECKER.checks(_name)(partial(_is_of_format, _name))
