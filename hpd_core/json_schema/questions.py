"""Questions of one document: which are asked at once, and which have to wait for other answers.

wave 1     every field, the keys of a list's objects (or their number)
wave 2     each object's fields, which see its key; fields of the shape that an object has, which see what says so
...        lists in lists
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpd_core.errors import PromptError
from hpd_core.json_schema.answers import FieldAnswer, Problem, pointer
from hpd_core.json_schema.form import (
    ROOT,
    Constant,
    FormGroup,
    Leaf,
    Node,
    Rows,
    Variants,
    count_name,
    joined_name,
    render_branch,
)
from hpd_core.requests.calls import Completion, OpenBranch
from hpd_core.text.value_kinds import Grammar, ListOf, spelled

Path = tuple[str | int, ...]
_MOST_WAITING = 10_000


@dataclass(frozen=True, slots=True)
class FormQuestion:
    """Value to decode.

    Attributes:
        path: of the value, or of the list whose objects are asked for.
        name: its key in the prompt.
        leaf: its form.
        seen: answers that its branch shows, by their keys.
        rows: the list that it is about, if it is not about itself.
        variants: the object whose shape it is about, if it is.
    """

    path: Path
    name: str
    leaf: Leaf
    seen: tuple[tuple[str, Any], ...] = ()
    rows: Rows | None = None
    variants: Variants | None = None

    @property
    def branch(self) -> OpenBranch:
        """Branch that is decoded, with the answers that it shows."""
        return OpenBranch(render_branch(self.name, dict(self.seen)), self.leaf.kind, self.leaf.max_tokens)


class Questions:
    """Questions of one document."""

    def __init__(self, form: Node) -> None:
        self.answers: dict[Path, FieldAnswer] = {}
        self.problems: list[Problem] = []
        self.lengths: dict[Path, int | None] = {}  # of lists of objects; None: there is none
        name = "" if isinstance(form, FormGroup) else ROOT
        self._waiting = list(self._of_node(form, (), name, ()))

    def next_wave(self) -> list[FormQuestion]:
        """Return the questions that can be asked now."""
        ready, self._waiting = self._waiting, []
        return ready

    def take(self, question: FormQuestion, completion: Completion) -> None:
        """Take an answer, and add the questions that follow from it.

        Raises:
            PromptError: there are too many fields, because lists are too long.
        """
        if completion.status not in ("value", "absent"):
            self.problems.append(Problem(pointer(question.path), _what_is_wrong(completion)))
        for path, answer in found_by(question, completion):
            self.answers[path] = answer
        if question.rows is not None:
            self._take_rows(question, question.rows, completion)
        if question.variants is not None and completion.status == "value":
            shape, field = question.variants.shapes[spelled(completion.value)], question.variants.name
            seen = (*question.seen, (question.name, completion.value))
            name = question.name.removesuffix(joined_name("", field)).removesuffix(".")
            self._waiting += self._of_group(shape, question.path[:-1], name, seen, field)

    def _take_rows(self, question: FormQuestion, rows: Rows, completion: Completion) -> None:
        if completion.status != "value":
            self.lengths[question.path] = None
            return
        value = completion.value
        written = value if rows.key is None else len(value)
        if written < 0 or (rows.most is None and written > rows.num_asked):
            message = f"{written} items, of which at most {rows.num_asked} are asked for: set 'maxItems'"
            self.problems.append(Problem(pointer(question.path), message))
        self.lengths[question.path] = count = num_rows(rows, value)
        list_name = question.name if rows.key is not None else question.name.removesuffix(count_name(""))
        for number in range(count):
            name = f"{list_name}[{number + 1}]"
            known = (question.name, value) if rows.key is None else (joined_name(name, rows.key), value[number])
            path = (*question.path, number)
            self._waiting += self._of_group(rows.row, path, name, (*question.seen, known), rows.key)
            if len(self._waiting) > _MOST_WAITING:
                raise PromptError(
                    f"{pointer(question.path)} has {count:,} objects, and with them there are more than "
                    f"{_MOST_WAITING:,} fields to ask for: set 'maxItems' lower"
                )

    def _of_group(
        self,
        group: FormGroup,
        path: Path,
        name: str,
        seen: tuple[tuple[str, Any], ...],
        known: str | None = None,
    ) -> Iterator[FormQuestion]:
        """Yield the questions of an object; `known`: the field that is answered."""
        for field, member in group.fields.items():
            if field == known:
                continue
            yield from self._of_node(member.node, (*path, field), joined_name(name, field), seen)

    def _of_node(self, node: Node, path: Path, name: str, seen: tuple[tuple[str, Any], ...]) -> Iterator[FormQuestion]:
        match node:
            case Constant():
                self.answers[path] = FieldAnswer(pointer(path), node.value, probability=1.0)
            case Leaf():
                yield FormQuestion(path, name, node, seen)
            case FormGroup():
                yield from self._of_group(node, path, name, seen)
            case Rows():
                key = name if node.key is not None else count_name(name)
                yield FormQuestion(path, key, node.asked, seen, node)
            case Variants():
                own = (*path, node.name), joined_name(name, node.name)
                yield FormQuestion(*own, node.asked, seen, variants=node)


def found_by(question: FormQuestion, completion: Completion) -> list[tuple[Path, FieldAnswer]]:
    """Return the fields that an answer covers. An answer with a list's keys covers one field per object. One with their
    number covers none, unless there are no objects.
    """
    answer = FieldAnswer(
        pointer(question.path),
        completion.value,
        completion.raw,
        completion.status,
        completion.num_tokens,
        completion.logprob_mean,
        completion.logprob_min,
        completion.probability,
        is_whole=isinstance(question.leaf.kind, Grammar),
    )
    rows = question.rows
    if rows is None or completion.status != "value":
        return [(question.path, answer)]
    count = num_rows(rows, completion.value)
    if not count:
        return [(question.path, replace(answer, value=[]))]
    if rows.key is None:
        return []
    paths = [(*question.path, number, rows.key) for number in range(count)]
    return [
        (path, replace(answer, path=pointer(path), value=value))
        for path, value in zip(paths, completion.value, strict=False)
    ]


def num_rows(rows: Rows, value: Any) -> int:
    """Return the number of a list's objects to ask for, given the answer to its first question: their keys, or their
    number.
    """
    return max(0, min(value if rows.key is None else len(value), rows.num_asked))


def _what_is_wrong(completion: Completion) -> str:
    if completion.status == "truncated":
        return f"its value was cut after {completion.num_tokens} tokens: allow more with 'x-hpd-max-tokens'"
    if completion.status == "invalid":
        wrote = f"the model wrote {completion.raw[:80]!r}"
        is_open = completion.raw.lstrip()[:1] == '"' and completion.raw.count('"') == 1
        why = "and broke the line before the text's end" if is_open else "which is no value of its kind"
        return f"{wrote}, {why}"
    return "the model's numbers are not finite (NaN or infinite): try another engine.dtype"


MISSING, THERE = object(), object()
"""Markers of a value that is left out, and of one that is written."""


class Assembly:
    """Assembly of one document's answers."""

    def __init__(self, answers: Mapping[Path, FieldAnswer], lengths: Mapping[Path, int | None]) -> None:
        """Take the answers, and the `lengths` of the lists of objects; None if there is no list."""
        self._answers, self._lengths = answers, lengths

    def of(self, form: Node) -> Any:
        """Return the whole answer; None if the model wrote none."""
        found = self._value(form, (), True)
        return None if found is MISSING else found

    def _fields(self, group: FormGroup, path: Path) -> dict[str, Any]:
        found = {name: self._value(each.node, (*path, name), each.is_required) for name, each in group.fields.items()}
        return {name: value for name, value in found.items() if value is not MISSING}

    def _value(self, node: Node, path: Path, is_required: bool) -> Any:
        if (state := self._state(node, path, is_required)) is not THERE:
            return state
        match node:
            case Constant():
                return node.value
            case Leaf():
                return self._answers[path].value
            case FormGroup():
                return self._fields(node, path)
            case Rows():
                return [self._fields(node.row, (*path, number)) for number in range(self._lengths[path] or 0)]
            case Variants():
                return self._fields(node.shapes[spelled(self._answers[*path, node.name].value)], path)

    def _state(self, node: Node, path: Path, is_required: bool) -> Any:
        """Return THERE for a value that is written, MISSING for a left-out one, else null or an empty list."""
        match node:
            case Constant():
                return THERE
            case FormGroup():
                if not node.can_miss or (is_required and not node.takes_null) or self._has_value(node, path):
                    return THERE
                return None if node.takes_null else MISSING
            case Rows() if self._lengths.get(path):
                return THERE
        answer = self._answers[(*path, node.name) if isinstance(node, Variants) else path]
        if answer.status == "value":
            return THERE
        if answer.status == "absent" and node.takes_null:
            return None
        is_list = isinstance(node, Rows) or (isinstance(node, Leaf) and isinstance(node.kind, ListOf))
        return [] if answer.status == "absent" and is_list and is_required else MISSING

    def _has_value(self, node: Node, path: Path) -> bool:
        """Return whether the model wrote any value of it."""
        match node:
            case Constant():
                return False
            case FormGroup():
                return any(self._has_value(member.node, (*path, name)) for name, member in node.fields.items())
            case Rows():
                return bool(self._lengths.get(path)) or self._answers[path].status not in ("absent", "value")
        return self._answers[(*path, node.name) if isinstance(node, Variants) else path].status != "absent"
