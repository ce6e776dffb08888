"""Prompts of trunks and their branches: of records with their schemas, and of trunks of any kind.

A record is a trunk (prefix | document | suffix) with a branch for each attribute. What a category's records have in
common is encoded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from hpd_core.config import EngineConfig
from hpd_core.decoding.prompt import Prompt, Slot
from hpd_core.decoding.run_tries import RunTries
from hpd_core.errors import PromptError
from hpd_core.layout import Branch, Layout, StackedObject, stacked_layout, tree_layout
from hpd_core.requests.calls import OpenBranch, Refusal, Trunk, asked_attributes, check_numbers, not_text
from hpd_core.system.leases import Lease
from hpd_core.text import template as texts
from hpd_core.text.member_tries import Entry, KindTables
from hpd_core.text.near_names import near_names
from hpd_core.text.runs import Runs, field_lines, lines_of
from hpd_core.text.template import Piece, render_document, render_frame, render_key, render_short_key
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import ValueKind, Verbatim, attribute_kind
from hpd_core.types import Attribute, CategorySchema, ErrorCode, Record, is_encodable

_MOST_KEPT = 2**20  # tokens of trunks' prefixes
_MOST_BRANCHES = 64  # of a trunk's prompt: for each, attention goes through the tokens of all. Prompts share their text


@dataclass(frozen=True, slots=True)
class CategoryTokens:
    """Token ids of everything in a prompt except the documents, for one category.

    Attributes:
        leases: keep the branches' states and members in the tables.
    """

    prefix: tuple[int, ...]
    suffix: list[int]
    branches: Sequence[Branch]
    leases: Sequence[Lease[Entry] | None]


TextLeft = Mapping[str, tuple[tuple[str, ...], float | None]]
"""Lines that a value is copied from and the rate of their runs (text/runs.py), by attribute. Attributes not named are
copied from all lines of the record."""


class DocumentTokenizer:
    """Tokenizer of documents that needs no model, so it can run on another machine than the accelerator's."""

    def __init__(self, tokenizer: Any) -> None:
        self._segments = SegmentTokenizer(tokenizer)

    @classmethod
    def from_pretrained(cls, model: str, config: EngineConfig | None = None) -> Self:
        """Load the tokenizer only. `model` as in `Engine.from_pretrained`."""
        from hpd_core.models.loading import load_tokenizer

        return cls(load_tokenizer(model, config or EngineConfig()))

    def encode(self, records: Sequence[Record]) -> list[list[int]]:
        """Return the token ids of each record's document."""
        return self._segments.encode_text([render_document(record.fields) for record in records])


class PromptBuilder:
    """Builder of prompts in the configured layout."""

    def __init__(
        self,
        tokenizer: Any,
        config: EngineConfig,
        max_positions: int | None,
        tables: KindTables | None = None,
        runs: RunTries | None = None,
        *,
        num_rows: int | None = None,
    ) -> None:
        """Build for one tokenizer and configuration. Without `tables` (constraints and members) values are free.

        `runs` has the members of verbatim values, for the layout 'tree'.
        `num_rows`: number of tokens that the model has an embedding of; None: it is not checked.
        """
        self._segments = SegmentTokenizer(tokenizer)
        self._tables, self._runs = tables, runs
        self._documents = DocumentTokenizer(tokenizer)
        self._config = config
        self._max_positions = max_positions
        self._num_rows = num_rows
        self.prompt_hash = config.prompt.rendered_hash(tokenizer)
        self._categories: dict[CategorySchema, CategoryTokens] = {}
        self._prefixes: dict[tuple[Piece, ...], tuple[int, ...]] = {}
        self._num_kept = 0
        # The structure of stacked prompts is the same few texts over and over.
        self._encode_structure = cache(self._segments.encode_trusted)

    def category_tokens(self, schema: CategorySchema) -> CategoryTokens:
        """Return the category's token ids; computed once per schema. Raise PromptError if it cannot be tokenized."""
        if schema not in self._categories:
            stacked = self._config.layout == "stacked"
            prefix, suffix = render_frame(self._config.prompt, schema, self._segments.tokenizer, stacked=stacked)
            opening = [] if stacked else [Piece(texts.single_header(), True)]
            opened = [self._branch(*each) for each in zip(self._keys(schema), schema.attributes, strict=True)]
            branches, leases = zip(*opened, strict=True)
            self._categories[schema] = CategoryTokens(
                prefix=tuple(self._segments.encode_pieces(prefix, begins=True)),
                suffix=self._segments.encode_pieces([*suffix, *opening]),
                branches=branches,
                leases=leases,
            )
        return self._categories[schema]

    def _branch(self, ids: Sequence[int], attribute: Attribute) -> tuple[Branch, Lease[Entry] | None]:
        is_copied = self._runs is not None and self._is_verbatim(attribute)
        kind = Verbatim(nullable=True) if is_copied else attribute_kind(attribute)
        return self._open(ids, kind, attribute.max_value_tokens, attribute.name)

    def _open(
        self, ids: Sequence[int], kind: ValueKind, max_tokens: int | None, attribute: str | None = None
    ) -> tuple[Branch, Lease[Entry] | None]:
        """Return the layout branch of a value, and the lease that keeps its state and members in the tables."""
        limit = max_tokens or self._config.max_value_tokens
        if isinstance(kind, Verbatim) and self._runs is not None:
            return Branch(ids, self._runs.limit(limit)), None
        if self._tables is None:
            return Branch(ids, limit), None
        # In a stacked record values see each other, so that none is chosen by itself.
        lease = self._tables.lease(kind, attribute, is_scored=attribute is None or self._config.layout != "stacked")
        state, members = lease.kept
        # A member is known, however long it is.
        return Branch(ids, max(limit, members.longest if members else 0), state, members), lease

    def _is_verbatim(self, attribute: Attribute) -> bool:
        is_any = self._config.strings == "verbatim" and attribute.type == "string" and not attribute.multiple
        return bool(attribute.verbatim) or is_any

    def _runs_of(
        self, record: Record, schema: CategorySchema, tokens: CategoryTokens, asked: Sequence[int], left: TextLeft
    ) -> dict[int, Runs]:
        """Return what verbatim values and stated numbers are chosen among, by branch."""
        if self._runs is None:
            return {}
        attributes = {place: schema.attributes[index] for place, index in enumerate(asked)}
        verbatim = [place for place, attribute in attributes.items() if self._is_verbatim(attribute)]
        lines = field_lines(record.fields) if verbatim else ()
        found = {}
        for place in verbatim:
            own_lines, rate = left.get(attributes[place].name, (lines, None))
            found[place] = Runs(own_lines, tokens.branches[asked[place]].max_new_tokens, rate=rate)
        if record.numbers and self._config.chooses_numbers:
            for place, attribute in attributes.items():
                if (numbers := record.numbers.get(attribute.name)) is not None:
                    most_tokens = tokens.branches[asked[place]].max_new_tokens
                    found[place] = Runs(check_numbers(attribute, tuple(numbers)), most_tokens, are_numbers=True)
        return found

    def _keys(self, schema: CategorySchema) -> list[list[int]]:
        """Return the token ids of each attribute's key; a short one is the shortest beginning that says something and
        begins no other.
        """
        full = self._segments.encode_schema_text([render_key(attribute) for attribute in schema.attributes])
        if self._config.prompt.keys != "short":
            return full
        names = self._segments.encode_schema_text([render_short_key(attribute) for attribute in schema.attributes])
        beginnings = [[ids[:length] for length in range(1, len(ids) + 1)] for ids in names]
        counts = Counter(tuple(ids) for own in beginnings for ids in own)
        return [
            next((ids for ids in own if counts[tuple(ids)] == 1 and self._says_something(ids)), key)
            for key, own in zip(full, beginnings, strict=True)
        ]

    def _says_something(self, ids: list[int]) -> bool:
        """Return whether the ids' text has a letter or a digit, and no incomplete character."""
        (text,) = self._segments.decode([ids])
        return any(map(str.isalnum, text)) and "\ufffd" not in text

    def build(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None = None,
        wanted: Sequence[Collection[str] | None] | None = None,
        left: Sequence[TextLeft] | None = None,
    ) -> tuple[list[Prompt], dict[int, Refusal]]:
        """Build prompts for all records that can be taken; return them and the refusals of the others by record number.

        A prompt's slots are its records' and their attributes' numbers.

        With `tree`, records of one category with the same document are decoded once, because their answers are equal.

        `wanted` names the attributes to answer, by record; None for all. The prompt always shows them all.
        `left` is the text left for some verbatim attributes, by record.

        The prompts of one category follow each other, short ones first, so that prompts that run together have similar
        lengths. With `tree` no answer depends on this order. With `stacked`, documents are stacked in input order, and
        only whole prompts are sorted.

        Raise ValueError if `document_ids` or `wanted` do not fit the records, their schemas or the layout.
        """
        refusals = {number: problem for number, record in enumerate(records) if (problem := not_text(record))}
        if document_ids is None:
            taken = [number for number in range(len(records)) if number not in refusals]
            encoded = self._documents.encode([records[number] for number in taken])
            ids_of = dict(zip(taken, encoded, strict=True))
            document_ids = [ids_of.get(number, []) for number in range(len(records))]
        if len(document_ids) != len(records):
            raise ValueError(f"{len(document_ids)} document_ids for {len(records)} records")
        if wanted is not None and len(wanted) != len(records):
            raise ValueError(f"wanted attributes for {len(wanted)} records, there are {len(records)}")
        if wanted is not None and self._config.layout == "stacked":
            raise ValueError("in the layout 'stacked' values see each other's keys: all attributes or none")
        by_category: dict[str, list[int]] = {}
        for number, record in enumerate(records):
            if number in refusals:
                continue
            if record.category not in schemas:
                refusals[number] = Refusal(ErrorCode.NO_SCHEMA, near_names(schemas).missing(record.category))
            elif self._segments.has_control(document_ids[number]):
                refusals[number] = Refusal(
                    ErrorCode.CONTROL_TOKENS, "the text still holds control tokens after they were cut"
                )
            elif (problem := self._unknown_token(document_ids[number])) is not None:
                refusals[number] = problem
            else:
                by_category.setdefault(record.category, []).append(number)
        found: list[Prompt] = []
        for category, numbers in by_category.items():
            try:
                tokens = self.category_tokens(schemas[category])
            except PromptError as error:
                refusals.update((number, Refusal(ErrorCode.CONTROL_TOKENS, str(error))) for number in numbers)
                continue
            if self._config.layout == "stacked":
                prompts = list(self._build_stacked(tokens, numbers, document_ids, refusals))
            else:
                asked = {
                    number: (None if wanted is None else wanted[number], {} if left is None else left[number])
                    for number in numbers
                }
                prompts = list(self._build_tree(tokens, asked, records, document_ids, refusals, schemas[category]))
            found += sorted(prompts, key=lambda prompt: prompt.layout.num_tokens)
        return found, refusals

    def open_trunk(self, schema: CategorySchema) -> tuple[Trunk, list[str]]:
        """Return the trunk of a category's records, without a document, and the texts of its attributes' keys."""
        prefix, suffix = render_frame(self._config.prompt, schema, self._segments.tokenizer, stacked=False)
        trunk = Trunk(prefix, "", (*suffix, Piece(texts.single_header(), True)))
        return trunk, self._segments.decode(self._keys(schema))

    def grow(self, number: int, trunk: Trunk, branches: Sequence[OpenBranch]) -> list[Prompt]:
        """Return the prompts of a trunk, by its number in a call.

        Raises:
            PatternError: the regular expression of a kind cannot be decoded.
            PromptError: the trunk cannot be taken.
            ValueError: a value is verbatim, and nothing is constrained.
        """
        verbatim = [isinstance(branch.kind, Verbatim) for branch in branches]
        if self._runs is None and any(verbatim):
            raise ValueError("a Verbatim value is constrained to its text: set engine.constrain_values to true")
        if not is_encodable(trunk.text + "".join(branch.text for branch in branches)):
            raise PromptError("the text, or a branch's, holds half of a surrogate pair, which no tokenizer takes")
        prefix = self._prefix(trunk.prefix)
        (own,) = self._segments.encode_text([trunk.text])
        if self._segments.has_control(own):
            raise PromptError("the text still holds control tokens after they were cut")
        keys = self._segments.encode_schema_text([branch.text for branch in branches])
        if not all(keys):
            raise PromptError("a branch has no text: its last token is what the value's first one follows")
        document = [*own, *self._segments.encode_pieces(trunk.suffix)]
        if not (prefix or document):
            raise PromptError("the trunk has no text: give it a prefix or a suffix, which an empty document has, too")
        opened = [self._open(ids, branch.kind, branch.max_tokens) for ids, branch in zip(keys, branches, strict=True)]
        lines = lines_of([trunk.text]) if any(verbatim) else ()
        prompts = []
        for first in range(0, len(branches), _MOST_BRANCHES):
            part = range(first, min(first + _MOST_BRANCHES, len(branches)))
            own_branches = [opened[place][0] for place in part]
            layout = tree_layout(prefix, document, own_branches, both_ways=self._config.reads_both_ways)
            if not self.fits(layout):
                raise PromptError(
                    f"the text has {len(own):,} tokens, and with all that stands around it {layout.num_positions:,}, "
                    f"more than the {self._max_positions:,} positions of the model: shorten it, or use one with a "
                    "longer context"
                )
            runs = {
                place - first: Runs(lines, opened[place][0].max_new_tokens, branches[place].kind.nullable)
                for place in part
                if verbatim[place]
            }
            leases = [lease for place in part if (lease := opened[place][1]) is not None]
            prompts.append(Prompt(layout, prefix, [Slot(number, place) for place in part], runs=runs, leases=leases))
        return prompts

    def _prefix(self, pieces: tuple[Piece, ...]) -> tuple[int, ...]:
        found = self._prefixes.get(pieces)
        if found is None:
            if not is_encodable("".join(piece.text for piece in pieces)):
                raise PromptError("the prefix holds half of a surrogate pair, which no tokenizer takes")
            found = tuple(self._segments.encode_pieces(pieces, begins=True))
            self._num_kept += len(found)
            if self._num_kept > _MOST_KEPT:
                self._prefixes.clear()
                self._num_kept = len(found)
            self._prefixes[pieces] = found
        return found

    def _unknown_token(self, ids: Sequence[int]) -> Refusal | None:
        """Return a refusal if a document has a token without an embedding, which would fail the step of all prompts."""
        if self._num_rows is None or len(ids) == 0 or (min(ids) >= 0 and max(ids) < self._num_rows):
            return None
        unknown = next(token for token in ids if not 0 <= token < self._num_rows)
        return Refusal(
            ErrorCode.ENGINE,  # no fault of the text: another model may have the token
            f"the document has the token {unknown}, and the model has those from 0 to {self._num_rows - 1}: use the "
            "tokenizer that it was trained with",
        )

    def _build_tree(
        self,
        tokens: CategoryTokens,
        asked_of: Mapping[int, tuple[Collection[str] | None, TextLeft]],
        records: Sequence[Record],
        document_ids: Sequence[Sequence[int]],
        refusals: dict[int, Refusal],
        schema: CategorySchema,
    ) -> Iterator[Prompt]:
        first: dict[Any, Prompt] = {}
        for number, (names, left) in asked_of.items():
            asked = asked_attributes(schema, names)
            runs = self._runs_of(records[number], schema, tokens, asked, left)
            text = (tuple(document_ids[number]), tuple(asked), tuple(runs.values()))
            if text in first:
                first[text].twins.append(number)
                continue
            layout = self.tree(tokens, document_ids[number], asked)
            if self.fits(layout):
                slots = [Slot(number, index) for index in asked]
                yield first.setdefault(text, Prompt(layout, tokens.prefix, slots, runs=runs))
            else:
                refusals[number] = self._too_long(layout, len(document_ids[number]))

    def _build_stacked(
        self,
        tokens: CategoryTokens,
        numbers: Sequence[int],
        document_ids: Sequence[Sequence[int]],
        refusals: dict[int, Refusal],
    ) -> Iterator[Prompt]:
        """Yield prompts of J documents each; of fewer if the gaps would not fit the model's positions."""
        rest = list(numbers)
        while rest:
            size = min(self._config.stack_size, len(rest))
            while True:
                layout = self.stack(tokens, [document_ids[number] for number in rest[:size]])
                if self.fits(layout) or size == 1:
                    break
                size -= 1
            if self.fits(layout):
                slots = [Slot(number, index) for number in rest[:size] for index in range(len(tokens.branches))]
                yield Prompt(layout, tokens.prefix, slots)
            else:
                refusals[rest[0]] = self._too_long(layout, len(document_ids[rest[0]]))
            rest = rest[size:]

    def tree(self, tokens: CategoryTokens, document: Sequence[int], asked: Sequence[int] | None = None) -> Layout:
        """Return the `tree` layout of one document. `asked`: the attributes to answer, by number; None for all."""
        branches = tokens.branches if asked is None else [tokens.branches[index] for index in asked]
        document = [*document, *tokens.suffix]
        return tree_layout(tokens.prefix, document, branches, both_ways=self._config.reads_both_ways)

    def stack(self, tokens: CategoryTokens, documents: Sequence[Sequence[int]]) -> Layout:
        """Return the `stacked` layout of J documents."""
        text = self._encode_structure
        shown: list[int] = []
        objects: list[StackedObject] = []
        for number, document in enumerate(documents, start=1):
            shown += [*text(f"Product {number}:\n"), *document, *text("\n\n")]
            header = text(f'{"{" if number == 1 else ""}"{number}": {{\n')
            objects.append(StackedObject(header, tokens.branches, text("},\n")))
        # The token that closes a value is never fed: a new line stands behind each value's gap.
        return stacked_layout(tokens.prefix, [*shown, *tokens.suffix], objects, text("\n"))

    def fits(self, layout: Layout) -> bool:
        """Return whether the model has positions for the prompt and its longest values."""
        return self._max_positions is None or layout.num_positions <= self._max_positions

    def _too_long(self, layout: Layout, num_document_tokens: int) -> Refusal:
        excess = layout.num_positions - (self._max_positions or 0)
        room = num_document_tokens - excess
        if room <= 0:
            needed = layout.num_positions - num_document_tokens
            return Refusal(
                ErrorCode.TOO_LONG,
                f"the category's attributes alone take {needed} of the model's {self._max_positions} positions: no "
                "text fits. Ask for fewer attributes, allow fewer values or use a model with a longer context",
            )
        return Refusal(
            ErrorCode.TOO_LONG,
            f"the document has {num_document_tokens} tokens; the model's {self._max_positions} positions leave room "
            f"for {room} beside the instruction, the keys and the values. Shorten the text, ask for fewer "
            f"attributes or use a model with a longer context",
        )
