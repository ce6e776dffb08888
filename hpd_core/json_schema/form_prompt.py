"""Prompt of a form: an instruction, a line for each field, the document, and a key before each value.

    Fields:
    - buyer.name: Full name; or null
    - lines: The lines of the invoice; a list, by name
    - lines[].price: a number; at least 0
    - paid.by: one of "card", "cash"
    - paid.number: a whole number; only if paid.by is "card"

All values of a document branch off from this one text. A value that depends on others has them before its key, as lines
of the answer:

    {
    "lines[2].name": "Blue shoe",
    "lines[2].price":
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpd_core.json_schema.form import FormGroup, FormMember, Leaf, Rows, Variants
from hpd_core.json_schema.leaf_reader import listed
from hpd_core.text.template import Piece, PromptTemplate, chat_wrapping, single_header
from hpd_core.text.value_kinds import spelled

_INSTRUCTION = "Fill in a form from a document."
_RULES = """\
Answer with JSON: one object with a key for each field, every field on a line of its own. Copy what the document says \
in as few words as possible. Where a field may be null, write null if the document does not say it."""

Frame = tuple[tuple[Piece, ...], tuple[Piece, ...]]
"""Pieces before a document, and between it and the answer's first key."""


def render_frame(form: FormGroup, template: PromptTemplate, tokenizer: Any, instruction: str | None) -> Frame:
    """Return the pieces around a document. Control tokens in the schema and the instruction are encoded as plain text.

    Raises:
        PromptError: the chat template drops or doubles the user's message.
    """
    head, tail = chat_wrapping(template, tokenizer)
    fields = "\n".join(_lines(form, ""))
    prefix = (
        Piece(head, True),
        Piece(instruction or _INSTRUCTION, False),
        Piece("\n\nFields:\n", True),
        Piece(fields, False),
        Piece(f"\n\n{_RULES}\n\nDocument:\n", True),
    )
    return prefix, (Piece(tail + single_header(), True),)


def render_branch(name: str, seen: Mapping[str, Any]) -> str:
    """Return a key, and before it the lines of the values that its value depends on, by their keys."""
    lines = [f"{spelled(other)}: {spelled(value)},\n" for other, value in seen.items()]
    return "".join(lines) + f"{spelled(name)}:"


def joined_name(name: str, field: str) -> str:
    """Return the name of an object's field."""
    return f"{name}.{field}" if name else field


def count_name(name: str) -> str:
    """Return the name of the number of a list's items."""
    return f"{name}.length"


def key_names(group: FormGroup, name: str = "", path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the keys of all values, as in `_lines`, and the path of each, where "*" means any object of a list."""
    for field, member in group.fields.items():
        node, own, place = member.node, joined_name(name, field), (*path, field)
        if isinstance(node, FormGroup):
            yield from key_names(node, own, place)
            continue
        if isinstance(node, Variants):
            for shape, _ in node.values_of_each():
                yield from key_names(shape, own, place)
            continue
        yield own, place
        if isinstance(node, Rows):
            if node.key is None:
                yield count_name(own), place
            yield from key_names(node.row, f"{own}[]", (*place, "*"))


def _lines(group: FormGroup, name: str, told: str | None = None) -> Iterator[str]:
    """Yield the lines of a group; `told`: a field that is described already."""
    if group.note and name:
        yield f"- {name}: {group.note}"
    for field, member in group.fields.items():
        if field != told:
            yield from _line(joined_name(name, field), member)


def _line(name: str, member: FormMember) -> Iterator[str]:
    node = member.node
    if isinstance(node, Leaf):
        yield f"- {name}: {node.note}" if node.note else f"- {name}"
    elif isinstance(node, FormGroup):
        yield from _lines(node, name)
    elif isinstance(node, Variants):
        own = joined_name(name, node.name)
        yield f"- {own}: {node.asked.note}"
        for shape, values in node.values_of_each():
            condition = f"only if {own} is {listed(values, ' or ')}"
            yield from (f"{line}; {condition}" for line in _lines(shape, name, node.name))
    elif isinstance(node, Rows):
        how = f"a list, by {node.key}" if node.key is not None else f"a list; {count_name(name)} is how many there are"
        yield f"- {name}: " + "; ".join(filter(None, [node.note, how]))
        yield from _lines(node.row, f"{name}[]")
