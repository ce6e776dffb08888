"""Tests over a table of cases: one test that runs every row and reports each that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

Test = Callable[..., None]


def table(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but one test.

    Rows share their fixtures, but for `tmp_path` and `monkeypatch`, of which each has its own.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [_values(row, len(columns)) for row in rows]
    assert cases, "a table without rows proves nothing"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        parameters = {name: each for name, each in signature.parameters.items() if name not in columns}
        parameters.setdefault("subtests", inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY))

        @functools.wraps(test)
        def run(*, subtests: pytest.Subtests, **fixtures: Any) -> None:
            if "subtests" in signature.parameters:  # a table within a table
                fixtures["subtests"] = subtests
            for number, case in enumerate(cases):
                row = dict(zip(columns, case, strict=True))
                with subtests.test(repr(case)[:200]), _of_row(number, fixtures) as own:
                    test(**own, **row)

        run.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
        return run

    return decorate


def _values(row: Any, num_columns: int) -> Sequence[Any]:
    if hasattr(row, "marks"):  # pytest.param
        assert not row.marks, "a row with a mark is a test of its own"
        values: Sequence[Any] = row.values
        return values
    return (row,) if num_columns == 1 else row


@contextmanager
def _of_row(number: int, fixtures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in own:
            own["monkeypatch"] = patch
        yield own
