"""Checks made-up JSON Schemas, for so many seconds: none may fail otherwise than by a refusal, or take long.

    python -m tests.core.json.made_up_schemas 3600

Prints the slowest check, in seconds of the processor. Exit code 1: one took longer than `--most-seconds`, or failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random
from typing import Annotated, Any

import typer

from hpd_core import SchemaError, check_schema

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_CHARACTERS = (
    *("a", "B", "-", r"\d", r"\w", r"\W", r"\s", r"\S", "."),
    *("[a-z]", "[^a]", "[A-Z0-9-]", r"\.", "é", r"\p{L}"),
)
_ATOMS = (*_CHARACTERS, "^", "$", r"\b", "(?=a)", "(?!b)", "(?:", r"\1", "[", ")")
_TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
_FORMATS = ("date", "time", "date-time", "email", "hostname", "uri", "uuid", "regex", "colour")
_VALUES: tuple[Any, ...] = (None, True, 0, -1.5, 10**30, "", "a", "é\n", [], [1], {}, {"a": "b"})
_NAMES = ("a", "b", "kind", "default", "$ref", "enum", "properties", "ü/~")


def pattern(random: Random, depth: int) -> str:
    """Return a regular expression, seldom a malformed one."""
    parts = []
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        part = random.choice(_CHARACTERS if random.random() < 0.95 else _ATOMS)
        if depth and random.random() < 0.4:
            part = f"({'|'.join(pattern(random, depth - 1) for _ in range(random.choice((1, 1, 2, 4))))})"
        if random.random() < 0.5:
            least = random.choice((0, 1, 3, 11, 64, 1_000))
            part += random.choice(("*", "+", "?", f"{{{least}}}", f"{{{least},}}", f"{{{least},{least * 3 + 1}}}"))
        parts.append(part)
    text = "".join(parts)
    return f"^{text}$" if random.random() < 0.6 else text


def schema(random: Random, depth: int) -> Any:
    """Return a schema of some keywords, which need not go together."""
    if random.random() < 0.05:
        return random.choice((True, False, {}))

    def inside() -> Any:
        return schema(random, depth - 1) if depth else {"type": random.choice(_TYPES)}

    def some() -> list[Any]:
        return [inside() for _ in range(random.choice((1, 2, 3)))]

    def named() -> dict[str, Any]:
        return {name: inside() for name in random.sample(_NAMES, random.choice((0, 1, 2, 4)))}

    def count() -> int:
        return random.choice((0, 1, 5, 1_000, 10**9))

    keywords: dict[str, Callable[[], Any]] = {
        "enum": lambda: random.sample(_VALUES, random.choice((1, 3))),
        "const": lambda: random.choice(_VALUES),
        "pattern": lambda: pattern(random, 2),
        "format": lambda: random.choice(_FORMATS),
        "$ref": lambda: random.choice(("#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#x", "http://x/y")),
        "required": lambda: random.sample(_NAMES, random.choice((0, 1, 3))),
        "patternProperties": lambda: {pattern(random, 1): inside()},
        "dependentRequired": lambda: {"a": ["b"]},
        "x-hpd-max-tokens": count,
        **dict.fromkeys(("properties", "$defs", "dependentSchemas"), named),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), some),
        **dict.fromkeys(("items", "not", "if", "then", "contains", "additionalProperties", "propertyNames"), inside),
        **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"), count),
    }
    found: dict[str, Any] = {"type": random.choice(_TYPES)} if random.random() < 0.7 else {}
    found |= {"properties": named()} if found.get("type") == "object" else {}
    return found | {name: keywords[name]() for name in random.sample(list(keywords), random.choice((0, 1, 1, 2, 4)))}


@app.command()
def main(
    seconds: Annotated[float, typer.Argument(help="How long.")],
    seed: Annotated[int, typer.Option(help="Of what is made up.")] = 0,
    most_seconds: Annotated[float, typer.Option(help="Of the processor, for one check.")] = 1.0,
) -> None:
    """Check for so long. Print what was slowest, and what failed."""
    random = Random(seed)
    end = time.monotonic() + seconds
    num_checked = num_taken = num_failed = 0
    slowest: tuple[float, str] = (0.0, "")
    check_schema({"type": "string", "pattern": r"\S\p{L}"})  # the tables of Unicode, which are made once
    while time.monotonic() < end:
        made = schema(random, random.choice((0, 1, 2, 3)))
        started = time.process_time()
        try:
            check_schema(made)
            num_taken += 1
        except SchemaError:
            pass
        except BaseException as error:  # each is a fault; a panic is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            num_failed += 1
            typer.echo(f"{type(error).__name__}: {error}: {json.dumps(made)}")
        num_checked += 1
        slowest = max(slowest, (time.process_time() - started, json.dumps(made)))
    typer.echo(f"{num_checked:,} checked, {num_taken:,} taken, {num_failed:,} failed")
    typer.echo(f"slowest: {slowest[0]:.2f} s, {slowest[1][:1_000]}")
    raise typer.Exit(int(num_failed > 0 or slowest[0] > most_seconds))


if __name__ == "__main__":
    app()
