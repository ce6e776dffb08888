"""Draws docs/tree-decoding.svg: how the layout `tree` decodes.

python -m docs.draw_tree_decoding
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURE = Path(__file__).with_name("tree-decoding.svg")
WIDTH, HEIGHT = 1120, 560

_STEPS = 4
_STEP_WIDTH, _FIRST_STEP = 106, 664
_ROW_HEIGHT, _FIRST_ROW = 52, 132

_STYLE = """
  text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1d2733; }
  .mono { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: 13px; }
  .title { font-size: 19px; font-weight: 600; }
  .head { font-weight: 600; }
  .small { font-size: 12.5px; fill: #54606e; }
  .panel { fill: #fbfcfe; stroke: #d4dbe4; }
  .band { fill: #eef2f8; }
  .line { fill: none; stroke: #9aa8b8; stroke-width: 1.6; }
  .prefix { fill: #dbe6fb; stroke: #6f93d6; }
  .document { fill: #dcefe3; stroke: #64ab7f; }
  .key { fill: #f1e8fa; stroke: #a67fce; }
  .value { fill: #fff1d3; stroke: #d9a233; }
  .end { fill: #ffffff; stroke: #d9a233; stroke-dasharray: 4 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf2; }
    .small { fill: #a9b5c3; }
    .panel { fill: #161c24; stroke: #34404f; }
    .band { fill: #1f2833; }
    .line { stroke: #66758a; }
    .prefix { fill: #22365c; stroke: #6f93d6; }
    .document { fill: #1d4030; stroke: #64ab7f; }
    .key { fill: #3b2a52; stroke: #a67fce; }
    .value { fill: #4d3a12; stroke: #d9a233; }
    .end { fill: #161c24; stroke: #d9a233; }
  }
"""


@dataclass(frozen=True)
class Value:
    """A key, and the tokens that are written for it, one a step; the last one ends it and is never fed."""

    key: str
    tokens: tuple[str, ...]


DOCUMENTS = {
    ("Document A", "“Velor men’s running", "shoe, red, size 42”"): (
        Value('"Brand":', ('"Vel', "or", '",')),
        Value('"Colour":', ('"red', '",')),
        Value('"Size":', ("4", "2", ",")),
    ),
    ("Document B", "“Birk & Dale trail", "shoe, grey”"): (
        Value('"Brand":', ('"Birk', " &", " Dale", '",')),
        Value('"Colour":', ('"grey', '",')),
        Value('"Size":', ("null",)),
    ),
}


def draw() -> str:
    """The picture as SVG."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" role="img" aria-labelledby="title">',
            '<title id="title">How tree decodes: a prefix, documents, keys, and all values one token a step</title>',
            f"<style>{_STYLE}</style>",
            _box("panel", 1, 1, WIDTH - 2, HEIGHT - 2, radius=12),
            *_heads(),
            *_lines(),
            *_prefix(),
            *_documents(),
            *_feet(),
            "</svg>\n",
        ]
    )


def _heads() -> Iterator[str]:
    yield _text("title", 30, 40, "All values of all products are decoded at the same time, one token each per step")
    for x, width, text in ((30, 190, "prefix"), (268, 180, "document"), (494, 116, "key")):
        yield _text("head", x + width / 2, 84, text, anchor="middle")
    yield _text("small", 125, 104, "once per category", anchor="middle")
    yield _text("small", 439, 104, "known, so they are fed, not generated", anchor="middle")
    for step in range(_STEPS):
        x = _FIRST_STEP + step * _STEP_WIDTH
        yield _box("band", x, 62, _STEP_WIDTH - 10, HEIGHT - 62 - 82, radius=8)
        yield _text("head", x + (_STEP_WIDTH - 10) / 2, 84, f"step {step + 1}", anchor="middle")
        yield _text("small", x + (_STEP_WIDTH - 10) / 2, 104, "writes", anchor="middle")


def _rows() -> Iterator[tuple[int, int, Value]]:
    """(document, the middle of the row, value)"""
    row = 0
    for document, values in enumerate(DOCUMENTS.values()):
        for value in values:
            yield document, _FIRST_ROW + row * _ROW_HEIGHT + 24 * document + 19, value
            row += 1


def _middle(document: int) -> float:
    return sum(y for number, y, _ in _rows() if number == document) / 3


def _lines() -> Iterator[str]:
    trunk = (_middle(0) + _middle(1)) / 2
    for document in range(len(DOCUMENTS)):
        yield _curve(220, trunk, 268, _middle(document))
    for document, y, value in _rows():
        yield _curve(448, _middle(document), 494, y)
        last = _FIRST_STEP + (len(value.tokens) - 1) * _STEP_WIDTH
        yield f'<path class="line" d="M610 {y}H{last + 8}"/>'


def _prefix() -> Iterator[str]:
    middle = (_middle(0) + _middle(1)) / 2
    yield _box("prefix", 30, middle - 62, 190, 124)
    lines = ("instruction and the", "attributes of “Shoes”:", "Brand, Colour, Size")
    for number, line in enumerate(lines):
        yield _text("", 125, middle - 17 + number * 22, line, anchor="middle")


def _documents() -> Iterator[str]:
    for number, (name, *lines) in enumerate(DOCUMENTS):
        middle = _middle(number)
        yield _box("document", 268, middle - 44, 180, 88)
        for line, text in enumerate((name, *lines)):
            yield _text("head" if line == 0 else "", 358, middle - 16 + line * 22, text, anchor="middle")
    for _, y, value in _rows():
        yield _box("key", 494, y - 17, 116, 34)
        yield _text("mono", 552, y + 5, value.key, anchor="middle")
        for step, token in enumerate(value.tokens):
            is_last = step == len(value.tokens) - 1
            x = _FIRST_STEP + step * _STEP_WIDTH + 8
            yield _box("end" if is_last else "value", x, y - 17, _STEP_WIDTH - 26, 34)
            yield _text("mono", x + (_STEP_WIDTH - 26) / 2, y + 5, token, anchor="middle")


def _feet() -> Iterator[str]:
    y = HEIGHT - 50
    yield _text("", 30, y, "A token sees its ancestors and itself, nothing else: no other value, no other product.")
    yield _text("small", 30, y + 24, "So a product’s answer is the same alone and among a million.")
    yield _box("value", 664, y - 14, 20, 18, radius=4)
    yield _text("small", 692, y, "written, then fed by the next step")
    yield _box("end", 664, y + 10, 20, 18, radius=4)
    yield _text("small", 692, y + 24, "ends the value; never fed. Its place goes to another product")


def _box(kind: str, x: float, y: float, width: float, height: float, radius: int = 8) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    preserved = ' xml:space="preserve"' if text != text.strip() else ""
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}"{preserved}>{escape(text, quote=False)}</text>'
    )


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    half = (x + to_x) / 2
    return f'<path class="line" d="M{x:g} {y:g}C{half:g} {y:g} {half:g} {to_y:g} {to_x:g} {to_y:g}"/>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE)
