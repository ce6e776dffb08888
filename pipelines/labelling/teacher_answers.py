"""Conversion of a teacher's values to labels: strict judgement, every problem counted by its kind.

A value is judged by the student's own rule (`hpd_core.text.values`), so that the student can reproduce every label.
Unusable values are left out of the labels, because not labelled differs from absent.

Splitting of one text into several values ("S, M, L") for attributes that are lists.

A text is split only if every part is an enum's member or stands in the product text by itself. So "1,5" and "Apple,
Inc." stay whole. Possible names ("Black & Decker", "AC/DC", "S and M") are split only if every part also stands
elsewhere in the text. Any other text with separators is a problem and not a label.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hpd_core import Attribute, CategorySchema, Record, Value
from hpd_core.text import absence
from hpd_core.text.grounding import Grounder
from hpd_core.text.numbers import is_undecided
from hpd_core.text.template import PromptTemplate, render_attribute, render_document
from hpd_core.text.values import parse_value, words_for_nothing
from hpd_core.types import content_hash
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.quality.scoring import fold, words_pattern

# None: looked, and absent. A list of texts: the forms of one value. A list of lists: several values.
GoldForms = list[str] | list[list[str]] | None


@dataclass(frozen=True, slots=True)
class Labels:
    """The usable labels of one product.

    Attributes:
        values: labels by attribute, in the schema's order; only labelled ones.
        problems: number of problems of the answer, by kind.
        not_in_text: attributes with a value that does not stand in the product text.
    """

    values: dict[str, GoldForms]
    problems: Counter[str]
    not_in_text: tuple[str, ...]


def judge(
    schema: CategorySchema, values: Mapping[str, Value], fields: Mapping[str, str], *, require_evidence: bool
) -> Labels:
    """Return the usable labels of a product's answers. Attributes missing from `values` are not labelled."""
    problems: Counter[str] = Counter()
    labels: dict[str, GoldForms] = {}
    not_in_text: list[str] = []
    document = _Document(fields)
    said = _names_said(schema, values)
    for attribute in schema.attributes:
        value = values.get(attribute.name)
        if value is None:
            continue
        if value.status not in ("value", "absent"):
            problems[_problem(attribute, value)] += 1
            continue
        # A teacher that says "NA" of two attributes means nothing by it, whatever the text has.
        items = [item for item in value.items if not attribute.is_text or said[absence.fold(item)] < 2]
        words = words_for_nothing(attribute, value.raw, fields)
        problems["placeholder"] += len(words) + len(value.items) - len(items)
        if any(absence.read(word, attribute.name, fields) is absence.Reading.UNCLEAR for word in words):
            continue
        standings = {document.standing(attribute, item) for item in items}
        for standing in standings - {"in_text"}:
            problems[standing] += 1
        if "not_in_text" in standings:
            not_in_text.append(attribute.name)
        is_open = attribute.type == "number" and any(map(is_undecided, items))
        if is_open or (require_evidence and standings - {"in_text"}):
            continue
        labels[attribute.name] = ([[item] for item in items] if attribute.multiple else items) or None
    return Labels(labels, +problems, tuple(not_in_text))


def _names_said(schema: CategorySchema, values: Mapping[str, Value]) -> Counter[str]:
    """Count the attributes that have each word that is a name here and a word for nothing elsewhere."""
    return Counter(
        word
        for attribute in schema.attributes
        if attribute.is_text and (value := values.get(attribute.name)) is not None
        for word in {
            absence.fold(item)
            for item in value.items
            if absence.read(item, attribute.name) is not absence.Reading.VALUE
        }
    )


class _Document:
    """The product text, prepared for looking up values."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._text = "\n".join(fields.values())
        self._folded = fold(self._text)
        self._grounder = Grounder(fields)

    def standing(self, attribute: Attribute, item: str) -> Literal["in_text", "ambiguous_number", "not_in_text"]:
        """Return whether the item stands in the text. Enums and truth values are conclusions and need not stand there.

        A text may stand inside a word, unlike evidence: "Leder" in "Lederjacke" is not a hallucination.
        """
        if attribute.type == "number":
            places = self._grounder.find(attribute, item)
            if places and places[0].match == "ambiguous":
                return "ambiguous_number"
            return "in_text" if places else "not_in_text"
        return "in_text" if not attribute.is_text or fold(item) in self._folded else "not_in_text"


def _problem(attribute: Attribute, value: Value) -> str:
    if value.status == "invalid" and value.raw:
        is_text = value.raw.startswith(("[", '"') if attribute.multiple else '"')
        return "not_in_enum" if attribute.type == "enum" and is_text else "wrong_type"
    return value.status


_SPACES = re.compile(r"[^\S\n]+")
# A comma between digits belongs to a number, and so does a slash.
_SEPARATOR = re.compile(r"\s*(?:[;；|•·\n、]|[,，،](?!\d)|(?<!\d)[,，،]|\s/\s)\s*")
# What joins two values, or the words of one name; letters that stand alone are no words.
_JOINER = re.compile(
    rf"{_SEPARATOR.pattern}|(?<!\d)[/／](?!\d)|\s+(?:[&＆+]|and|or|und|oder|et|ou|y|och|og)\s+"
    r"|(?<=\b[^\W\d_])\s+(?=[^\W\d_]\b)"
)
# The parts of a list are not all of it, or not parts.
_JOINED = re.compile(r"&|\+|\b(?:and|or|more|etc|und|oder|mehr|usw|et|ou|plus|y|o|e|och|og|en|i)\b", re.IGNORECASE)
_NAME_ENDS = frozenset({"inc", "ltd", "llc", "co", "corp", "gmbh", "ag", "plc", "sa", "jr", "sr"})


def split_lists(
    schema: CategorySchema, values: Mapping[str, Value], fields: Mapping[str, str]
) -> tuple[dict[str, Value], Counter[str]]:
    """Split the list texts of a product's answer into values. Those that cannot be split are left out and counted."""
    split, problems = dict(values), Counter[str]()
    for attribute in schema.attributes:
        value = values.get(attribute.name)
        if value is None or not attribute.multiple or value.status not in ("value", "invalid"):
            continue
        text, is_listed = _only_text(value)
        ways = [(_parts(attribute, text, _SEPARATOR), "")]
        if not is_listed or attribute.type == "enum":  # within a list, "S and M" is one value
            ways.append((_parts(attribute, text, _JOINER), text))
        ways = [way for way in ways if len(way[0]) > 1]
        several = next(filter(None, (_several(attribute, parts, fields, whole) for parts, whole in ways)), None)
        if several is not None:
            split[attribute.name] = several
        elif ways and value.status == "value" and not is_listed and attribute.is_text:
            del split[attribute.name]
            problems["list_as_text"] += 1
    return split, problems


def _only_text(value: Value) -> tuple[str, bool]:
    """Return the single text of an answer, and whether it is in a list; "" if it is anything else."""
    try:
        answer: Any = json.JSONDecoder(strict=False).raw_decode(value.raw.strip())[0]
    except (ValueError, RecursionError):
        return "", False
    is_listed = isinstance(answer, list)
    if is_listed and len(answer) == 1:
        answer = answer[0]
    return (answer if isinstance(answer, str) else ""), is_listed


def _parts(attribute: Attribute, text: str, separator: re.Pattern[str]) -> list[str]:
    if text in attribute.vocabulary.spellings:
        return [text]
    parts = [part for part in separator.split(_SPACES.sub(" ", text.strip())) if part]
    return [text] if any(fold(part.replace(".", "")) in _NAME_ENDS for part in parts) else parts


def _several(attribute: Attribute, parts: list[str], fields: Mapping[str, str], whole: str) -> Value | None:
    """Return the parts as values if each is a member or stands in the text, outside `whole` if given; else None."""
    several = parse_value(attribute, json.dumps(parts), closed=True, fields=fields)
    if several.status != "value" or attribute.type == "enum":
        return several if several.status == "value" else None
    text = fold("\n".join(fields.values()))
    if whole:
        text = text.replace(fold(whole), "\n")
    is_apart = all(not _JOINED.search(part) and words_pattern([fold(part)]).search(text) for part in parts)
    return several if is_apart else None


_MAX_SHOWN_ANSWER = 2000  # characters of a useless answer that are shown to the teacher again
_MAX_LISTED_VALUES = PromptTemplate().max_listed_values

# What OpenAI's structured outputs take of a schema; a request with more is refused as a whole.
# https://platform.openai.com/docs/guides/structured-outputs/supported-schemas
_MAX_ENUM_VALUES = 1_000  # of all enums
_MANY_VALUES, _MAX_LETTERS_OF_MANY = 250, 15_000  # an enum of more values may not have more letters
_MAX_LETTERS = 120_000  # of all names and values

Message = dict[str, str]

REMINDER = """\
That answer cannot be used: {problem}. Answer again, with one JSON object and nothing else: a key for each attribute, \
spelled as in the list, and null where the product text does not state it."""


def product_messages(config: OpenAITeacherConfig, schema: CategorySchema, record: Record) -> list[Message]:
    """Build the question about one product: attributes and text as the student will read them.

    For a vocabulary that the student's prompt does not list, a few values are shown. An answer is mapped to the member
    whose label or synonym it is.
    """
    before, rest = config.instruction.split("{attributes}")
    between, after = rest.split("{documents}")
    attributes = "\n".join(render_attribute(attribute, _MAX_LISTED_VALUES) for attribute in schema.attributes)
    text = before + attributes + between + render_document(record.fields) + after
    system = [{"role": "system", "content": config.system}] if config.system else []
    return [*system, {"role": "user", "content": text}]


def asked_again(messages: list[Message], answer: str, problem: str) -> list[Message]:
    """Return the question, the useless answer to it, and what was wrong with that."""
    reminder = {"role": "user", "content": REMINDER.replace("{problem}", problem)}
    if not answer.strip():
        return [*messages[:-1], {"role": "user", "content": f"{messages[-1]['content']}\n\n{reminder['content']}"}]
    return [*messages, {"role": "assistant", "content": answer[:_MAX_SHOWN_ANSWER]}, reminder]


def prompt_hash(config: OpenAITeacherConfig) -> str:
    """Hash the wording of the questions; equal for two configurations with the same words."""
    return content_hash([config.system, config.instruction, REMINDER])


MODES = ("json_schema", "tool", "json_object", "off")
"""Ways to enforce the form of an answer, strictest first; `json_mode: auto` falls back to the next on refusal."""


def answer_shape(mode: str, schema: CategorySchema) -> dict[str, Any]:
    """Return the keys of the request that enforce the answer's form."""
    if mode == "off":
        return {}
    if mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    if mode == "tool":
        function = {
            "name": "attributes",
            "description": "Answer with the attributes.",
            "parameters": json_schema(schema),
        }
        choice = {"type": "function", "function": {"name": "attributes"}}
        return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
    named = {"name": "attributes", "strict": True, "schema": json_schema(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def json_schema(schema: CategorySchema) -> dict[str, Any]:
    """Return the JSON Schema of an answer.

    The longest enums, which exceed OpenAI's limits, are plain strings in it.
    """
    enums = _enums_that_fit(schema)
    return {
        "type": "object",
        "properties": {
            attribute.name: _shape(attribute, is_enum=attribute.name in enums) for attribute in schema.attributes
        },
        "required": [attribute.name for attribute in schema.attributes],
        "additionalProperties": False,
    }


def _enums_that_fit(schema: CategorySchema) -> set[str]:
    """Return the attributes whose values a JSON schema can hold, preferring the shortest vocabularies."""
    values, letters = 0, sum(len(attribute.name) for attribute in schema.attributes)
    fitting = set()
    for attribute in sorted(schema.attributes, key=lambda each: len(each.labels)):
        count, length = len(attribute.labels), sum(map(len, attribute.labels))
        is_one_too_long = count > _MANY_VALUES and length > _MAX_LETTERS_OF_MANY
        if count and not is_one_too_long and values + count <= _MAX_ENUM_VALUES and letters + length <= _MAX_LETTERS:
            values, letters = values + count, letters + length
            fitting.add(attribute.name)
    return fitting


def _shape(attribute: Attribute, *, is_enum: bool) -> dict[str, Any]:
    if is_enum:
        item: dict[str, Any] = {"type": "string", "enum": list(attribute.labels)}
    else:
        is_text = attribute.is_text or attribute.type == "enum"
        item = {"type": "string" if is_text else attribute.type}
    return {"anyOf": [{"type": "array", "items": item} if attribute.multiple else item, {"type": "null"}]}
