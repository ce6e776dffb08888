"""Check of schemas for what a model cannot answer, by its tokenizer and configuration alone: no weights are read.

A category's attribute list, keys and values take positions of the model's context before any product's text does.
A value may not exceed its maximum of tokens, even if it is a member of an enum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

from hpd_core.config import EngineConfig
from hpd_core.errors import PromptError
from hpd_core.models import description, loading
from hpd_core.requests.prompt_builder import CategoryTokens, PromptBuilder
from hpd_core.text.near_names import quoted
from hpd_core.text.template import render_attribute
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.types import Attribute, CategorySchema

# Tokens of a product's text for which there should be room: a title and some lines.
_LEAST_ROOM = 128

Decoding = Literal["hpd", "ar", "made-up"]


@dataclass(frozen=True, slots=True)
class RoomProblem:
    """Problem of a category. `is_fatal`: none of its products can be decoded."""

    category: str
    message: str
    is_fatal: bool

    def __str__(self) -> str:
        return f"category {quoted(self.category)}: {self.message}"


class SchemaRoom:
    """Checker of schemas with one model's tokenizer and context."""

    def __init__(
        self, tokenizer: Any, config: EngineConfig, max_positions: int | None, decoding: Decoding = "hpd"
    ) -> None:
        """Take `max_positions` from `models.description.max_positions`."""
        self._config = config.autoregressive() if decoding == "ar" else config
        self._decoding = decoding
        self._max_positions = max_positions
        self._segments = SegmentTokenizer(tokenizer)
        self._builder = PromptBuilder(tokenizer, self._config, max_positions)

    @classmethod
    def from_pretrained(cls, model: str, config: EngineConfig, decoding: Decoding = "hpd") -> Self:
        """Load tokenizer and configuration. Raise `HPDError` on failure. `model` as in `Engine.from_pretrained`."""
        max_positions = description.max_positions(loading.load_config(model, config))
        return cls(loading.load_tokenizer(model, config), config, max_positions, decoding)

    def problems(self, schema: CategorySchema) -> Iterator[RoomProblem]:
        """Yield the problems of one category."""
        try:
            tokens = self._builder.category_tokens(schema)
        except PromptError as error:
            yield RoomProblem(schema.category, str(error), is_fatal=True)
            return
        if self._max_positions is not None and self._decoding != "made-up":
            room = self._max_positions - self._needed(tokens)
            if room < _LEAST_ROOM:
                yield RoomProblem(schema.category, self._explain(schema, tokens, max(0, room)), is_fatal=room <= 0)
                if room <= 0:
                    return
        for attribute in schema.attributes:
            for message in self._unwritable(attribute):
                yield RoomProblem(schema.category, f"attribute {quoted(attribute.name)}: {message}", is_fatal=False)

    def _needed(self, tokens: CategoryTokens) -> int:
        """Return the number of positions needed without any document."""
        if self._decoding == "ar":
            answers = sum(len(branch.tokens) + branch.max_new_tokens for branch in tokens.branches)
            return len(tokens.prefix) + len(tokens.suffix) + answers
        stacked = self._config.layout == "stacked"
        return (self._builder.stack(tokens, [[]]) if stacked else self._builder.tree(tokens, [])).num_positions

    def _explain(self, schema: CategorySchema, tokens: CategoryTokens, room: int) -> str:
        in_a_row = self._decoding == "ar" or self._config.layout == "stacked"
        listed = self._config.prompt.max_listed_values
        lines = self._segments.encode_schema_text([render_attribute(each, listed) for each in schema.attributes])
        values = sum(branch.max_new_tokens for branch in tokens.branches) if in_a_row else 0
        sizes = [len(line) for line in lines]
        largest = schema.attributes[sizes.index(max(sizes))]
        left = "none" if not room else f"{room:,}"
        text = (
            f"its {len(schema.attributes):,} attributes take {self._needed(tokens):,} of the model's "
            f"{self._max_positions:,} positions and leave {left} for a product's text. "
        )
        if 2 * max(sizes) > sum(sizes) + values:
            text += f"{quoted(largest.name)} alone takes {max(sizes):,}"
            if largest.values is not None and len(largest.values) <= listed:
                return text + (
                    f" for its {len(largest.values):,} values: lower engine.prompt.max_listed_values, so that they are "
                    "not listed, or allow fewer values"
                )
            return text + " for its name and description: shorten them"
        if values > sum(sizes):
            text += f"{values:,} of them are kept for values (max_value_tokens each): "
            return text + "lower max_value_tokens, ask for fewer attributes, or use the layout 'tree'"
        return text + "Ask for fewer of them, shorten descriptions and lists of values, or take a longer context"

    def _unwritable(self, attribute: Attribute) -> Iterator[str]:
        """Yield a message if null, or if members, have more tokens than an answer of the attribute may have."""
        limit = attribute.max_value_tokens or self._config.max_value_tokens
        # A value that is cut after its last letter or quote is whole.
        (null,) = self._segments.encode_schema_text([" null"])
        if len(null) > limit:
            yield f"max_value_tokens is {limit}, null alone takes {len(null)}: raise it"
        members = [member for member in attribute.labels if len(member.encode()) + 3 > limit]
        if not members:
            return
        opening = " [" if attribute.multiple else " "
        written = [opening + json.dumps(member, ensure_ascii=False) for member in members]
        sizes = [len(ids) for ids in self._segments.encode_schema_text(written)]
        too_long = [(size, member) for size, member in zip(sizes, members, strict=True) if size > limit]
        if too_long:
            size, member = max(too_long)
            yield (
                f"{len(too_long):,} of its {len(attribute.labels):,} values have more tokens than a value may "
                f"have ({limit}) and can never be answered: {quoted(member)} takes {size}. Raise max_value_tokens, or "
                "shorten them"
            )
