"""Draws docs/contribute/rooms.svg: the packages floor by floor, and the way of one record through them.

    python -m docs.draw_rooms

Floors come from the import graph (tests/test_import_graph.py): a room imports only from the floors below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from tests.test_import_graph import floors, room_graph

PICTURE = Path(__file__).parent / "contribute" / "rooms.svg"

WAY = (
    "pipelines.catalog",
    "pipelines.job",
    "hpd_core.engine",
    "hpd_core.requests",
    "hpd_core.layout",
    "hpd_core.decoding",
    "hpd_core.layers",
    "hpd_core.attention",
    "hpd_core.text",
    "pipelines.store",
)
"""The rooms that a record passes, in the order in which docs/contribute/architecture.md tells it."""

_HOUSES = {"hpd_core": "the engine", "pipelines": "the job on Ray", "bench": "measurements"}
_ROOM, _HEIGHT, _GAP, _MARGIN, _TOP = 122, 34, 8, 24, 112

_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1d2733; }
  .title { font-size: 19px; font-weight: 600; }
  .head { font-size: 15px; font-weight: 600; }
  .small { font-size: 12.5px; fill: #54606e; }
  .panel { fill: #fbfcfe; stroke: #d4dbe4; }
  .band { fill: #f1f4f9; }
  .hpd_core { fill: #dbe6fb; stroke: #6f93d6; }
  .pipelines { fill: #dcefe3; stroke: #64ab7f; }
  .bench { fill: #fff1d3; stroke: #d9a233; }
  .badge { fill: #b3372f; stroke: #fbfcfe; stroke-width: 1.5; }
  .number { font-size: 11.5px; font-weight: 600; fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf2; }
    .small { fill: #a9b5c3; }
    .panel { fill: #161c24; stroke: #34404f; }
    .band { fill: #1c242e; }
    .hpd_core { fill: #22365c; stroke: #6f93d6; }
    .pipelines { fill: #1d4030; stroke: #64ab7f; }
    .bench { fill: #4d3a12; stroke: #d9a233; }
    .badge { fill: #c9504a; stroke: #161c24; }
    .number { fill: #ffffff; }
  }
"""


def draw() -> str:
    """The picture as SVG."""
    stories = list(reversed(floors(room_graph())))
    width = _left("bench") + _width("bench") + _MARGIN
    height = _TOP + len(stories) * (_HEIGHT + _GAP) + 64
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-labelledby="title">',
            '<title id="title">The packages floor by floor, and the way of one record through them</title>',
            f"<style>{_STYLE}</style>",
            f'<rect class="panel" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="12"/>',
            *_heads(),
            *(part for number, rooms in enumerate(stories) for part in _floor(number, rooms, width)),
            *_feet(height),
            "</svg>\n",
        ]
    )


def _rooms(house: str, floor: list[str]) -> list[str]:
    return [room for room in floor if room.startswith(f"{house}.")]


def _width(house: str) -> int:
    """Of the house's widest floor."""
    most = max(len(_rooms(house, floor)) for floor in floors(room_graph()))
    return most * (_ROOM + _GAP) - _GAP


def _left(house: str) -> int:
    before = list(_HOUSES)[: list(_HOUSES).index(house)]
    return _MARGIN + sum(_width(each) + 3 * _GAP for each in before)


def _heads() -> Iterator[str]:
    yield _text("title", _MARGIN, 40, "A room imports only from the floors below it")
    for house, what in _HOUSES.items():
        yield _text("head", _left(house), 82, house)
        yield _text("small", _left(house), 100, what)


def _floor(number: int, rooms: list[str], width: int) -> Iterator[str]:
    y = _TOP + number * (_HEIGHT + _GAP)
    yield f'<rect class="band" x="12" y="{y - 3}" width="{width - 24}" height="{_HEIGHT + 6}" rx="8"/>'
    for house in _HOUSES:
        for place, room in enumerate(_rooms(house, rooms)):
            x = _left(house) + place * (_ROOM + _GAP)
            yield f'<rect class="{house}" x="{x}" y="{y}" width="{_ROOM}" height="{_HEIGHT}" rx="7"/>'
            yield _text("", x + _ROOM / 2, y + 22, room.split(".")[1], "middle")
            if room in WAY:
                yield f'<circle class="badge" cx="{x + 4}" cy="{y + 4}" r="9.5"/>'
                yield _text("number", x + 4, y + 8, str(WAY.index(room) + 1), "middle")


def _feet(height: int) -> Iterator[str]:
    y = height - 30
    yield f'<circle class="badge" cx="{_MARGIN + 10}" cy="{y - 4}" r="9.5"/>'
    yield _text("number", _MARGIN + 10, y, "1", "middle")
    yield _text(
        "", _MARGIN + 28, y, "the way of one record, from a Parquet cell to a Parquet value: the numbers of the text"
    )


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text, quote=False)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE)
