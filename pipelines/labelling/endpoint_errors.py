"""Classification of an endpoint's errors, in any form: an HTTP status, and the seconds to wait.

Gateways send errors of their upstream model with status 200, in many forms; many say more in words than in codes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

# Where none of the words below says what it is: the endpoint's fault, asked about again.
SERVER_ERROR = 502
DECLINED = 451  # the text offends the endpoint's rules: it is about this product

ENDING = (401, 402, 404)  # the key, the account or the model: the run ends

_MAX_NESTED = 6
_MAX_MESSAGE, _MAX_CODE = 2000, 200  # characters that are read
_MAX_LEAVES = 200  # values of an error that are looked at for codes
_CODES = frozenset(
    {"code", "status", "status_code", "statuscode", "http_code", "http_status", "type", "error_code", "errortype"}
)
_MESSAGES = (
    *("raw", "message", "msg", "error_msg", "error_message", "errormessage", "status_msg", "detail", "details"),
    *("error_description", "description", "reason", "title", "error", "errors", "response", "metadata"),
)
_IN_WORDS = re.compile(r"\b(?:code|status|http|error|returned)\b\W{0,12}([45]\d\d)\b", re.IGNORECASE)
_MEANINGS: tuple[tuple[int, re.Pattern[str]], ...] = tuple(
    (status, re.compile(words))
    for status, words in (
        (
            402,
            r"insufficient (?:quota|balance|credit|fund)|billing (?:hard limit|limit|error|not|is not)|payment required"
            r"|out of credits|not enough credits",
        ),
        (DECLINED, r"content ?(?:filter|policy|management)|moderation|responsible ?ai|data ?inspection"),
        (
            429,
            r"rate ?limit|too many requests|throttl|resource ?(?:has been )?exhausted|slow ?down|quota"
            r"|(?:requests|tokens) per (?:minute|hour|day)|concurren|\b[tr]pm\b",
        ),
        (
            401,
            r"unauthori[sz]ed|unauthenticated|not authenticated|authentication ?(?:error|fail|required|is required)"
            r"|(?:invalid|valid|incorrect|missing|wrong|no|bad|expired|provide|an|your|the) api ?key"
            r"|api ?key (?:not|is|missing|required|expired|invalid)|invalid (?:access |auth )?token|permission ?denied"
            r"|\Aforbidden|no auth\b|not logged in",
        ),
        (
            404,
            r"(?:model|deployment|engine|endpoint|route)\b.{0,80}(?:not found|not exist)|no such (?:model|deployment)"
            r"|(?:unknown|invalid) (?:model|deployment|engine)|\Anot ?found\b|not ?found ?error",
        ),
        (503, r"overload|time(?:d)? ?out|unavailable|upstream|server|gateway|capacity|try again|connection|busy"),
        (400, r"context ?(?:length|window)|maximum context|too (?:long|many tokens|large)|invalid ?request"),
    )
)
# What is quoted may be the product's text: it never ends a run.
_QUOTED = re.compile(r"""(?<!\w)'[^']*'(?!\w)|"[^"]*"|`[^`]*`|[“„«][^”“»]*[”“»]|‘[^’]*’""")
_WAITS = {"retry_after": 1, "retryafter": 1, "retry_after_seconds": 1, "retrydelay": 1, "retry_after_ms": 1000}
_WAIT_IN_WORDS = re.compile(r"\b(?:again|retry|wait)\b\D{0,20}?((?:\d+(?:\.\d+)?\s*(?:ms|[a-z]+)\s*)+)", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|s|m|h)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class EndpointError:
    """An error of an endpoint.

    Attributes:
        status: the equivalent HTTP status; `DECLINED` for a text that the endpoint refuses to answer.
        retry_after: seconds to wait, if given.
    """

    status: int
    message: str
    retry_after: float | None = None


def error_of(error: Any) -> EndpointError:
    """Classify an error, which is an object, a list or a text."""
    message = _message(error) or _shown(error)
    return EndpointError(_status(error, message), message, _retry_after(error, message))


def _status(error: Any, message: str) -> int:
    codes = [str(value)[:_MAX_CODE] for key, value in islice(_leaves(error), _MAX_LEAVES) if key in _CODES]
    # "insufficient_quota" and "content_filter" say more than the number beside them.
    if (named := _meaning(codes)) in (402, DECLINED):
        return named
    numbers = [int(code) for code in codes if re.fullmatch(r"[45]\d\d", code)]
    numbers += [int(found) for found in _IN_WORDS.findall(message)]
    in_words = _meaning([*codes, message])
    if numbers and not (numbers[0] in (400, 403) and in_words == DECLINED):
        return numbers[0]
    return in_words or SERVER_ERROR


def _meaning(texts: list[str]) -> int | None:
    words, unquoted = (
        re.sub(r"[\W_]+", " ", text.casefold()).strip() for text in (" ".join(texts), _QUOTED.sub(" ", " ".join(texts)))
    )
    return next(
        (status for status, pattern in _MEANINGS if pattern.search(unquoted if status in ENDING else words)), None
    )


def _message(error: Any, nested: int = 0) -> str:
    if isinstance(error, str):
        return " ".join(error[:_MAX_MESSAGE].split())
    if nested > _MAX_NESTED:
        return ""
    if isinstance(error, list):
        return next((message for item in error if (message := _message(item, nested + 1))), "")
    if not isinstance(error, Mapping):
        return ""
    folded = {str(key).casefold(): value for key, value in error.items()}
    said = dict.fromkeys(message for key in _MESSAGES if (message := _message(folded.get(key), nested + 1)))
    return ": ".join(said)


def _shown(error: Any) -> str:
    try:
        return json.dumps(error, ensure_ascii=False)[:_MAX_MESSAGE]
    except (ValueError, RecursionError, TypeError):
        return "an error without words"


def _retry_after(error: Any, message: str) -> float | None:
    for key, value in _leaves(error):
        if key in _WAITS and (seconds := _duration(str(value))) is not None:
            return seconds / _WAITS[key]
    found = _WAIT_IN_WORDS.search(message)
    return _duration(found[1]) if found else None


def _duration(text: str) -> float | None:
    """Parse seconds from "22", "22s", "6m0s" or "350ms"; None if there are none."""
    parts = _DURATION.findall(text)
    seconds = sum(float(number) * _SECONDS[unit.casefold()] for number, unit in parts)
    return seconds if parts and math.isfinite(seconds) else None


def _leaves(value: Any, key: str = "", nested: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield every value that is not an object or list, with its case-folded key."""
    if nested > _MAX_NESTED:
        return
    if isinstance(value, Mapping):
        for inner_key, inner in value.items():
            yield from _leaves(inner, str(inner_key).casefold(), nested + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, key, nested + 1)
    else:
        yield key, value
