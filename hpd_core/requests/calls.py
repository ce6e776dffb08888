"""Questions to the engine and its answers: futures with their cost, and trunks with branches, for any purpose.

    trunk      prefix | text | suffix     what all its branches see; equal prefixes are computed once for all trunks
    branch     text                       private: no other branch sees it, nor its value
    value      decoded                    JSON on one line, constrained by the branch's kind; see text/value_kinds.py

A branch's value equals that of ordinary decoding after prefix + text + suffix + branch, whatever else is decoded
beside it. If documents are read both ways (bidirectional attention), text and suffix are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, TypeVar

from hpd_core.errors import EngineError
from hpd_core.text.near_names import NearNames
from hpd_core.text.template import Piece
from hpd_core.text.value_kinds import FreeText, Grammar, ListOf, OneOf, ValueKind, Verbatim
from hpd_core.text.values import error_value
from hpd_core.types import Attribute, CategorySchema, Choice, ErrorCode, Record, RecordResult, ValueStatus

Result = TypeVar("Result")


@dataclass(slots=True)
class ExtractionMetrics:
    """Cost of one call. Tokens are counted where they were forwarded.

    `document_tokens_shared` were not forwarded: they belong to text shared with others, which was forwarded once.
    `scored_tokens` were forwarded to choose closed answers, and are not part of one.
    `busy_seconds` is the engine's time; each step's is split over its calls by tokens forwarded. Of it,
    `prefix_seconds` went into categories' prefixes and shared text; the rest is the sum of the results'
    `engine_seconds`. `num_records` grows while records are decoded.
    """

    num_records: int = 0
    num_errors: int = 0
    prefix_tokens_computed: int = 0
    prefix_tokens_reused: int = 0
    document_tokens: int = 0
    document_tokens_shared: int = 0
    key_tokens: int = 0
    value_tokens: int = 0
    scored_tokens: int = 0
    num_steps: int = 0
    busy_seconds: float = 0.0
    prefix_seconds: float = 0.0


class MeasuredFuture(Future[Result]):
    """Future with the cost of its result: `metrics` is complete when it is done.

    Work is shared with others, so it cannot be called back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.metrics = ExtractionMetrics()
        self.set_running_or_notify_cancel()

    def settle(self, result: Any = None, error: BaseException | None = None) -> bool:
        """Set a result or an error. Return False if it already has one."""
        try:
            if error is None:
                self.set_result(result)
            else:
                self.set_exception(error)
        except InvalidStateError:
            return False
        return True


class ExtractionFuture(MeasuredFuture[list[RecordResult]]):
    """Results of one `submit`, in input order."""


_ANYTHING = FreeText()
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Trunk:
    """Text that some branches grow from.

    Attributes:
        prefix: beginning that many trunks share. A `Piece` that is not trusted, and `text`, cannot hold control tokens.
        text: the trunk's own text: a document.
        suffix: text between the document and the branches.
    """

    prefix: tuple[Piece, ...]
    text: str
    suffix: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenBranch:
    """Open end, from which a value grows.

    Attributes:
        text: text before the value, mostly a key and a colon; the space after it belongs to the value.
        kind: constraint of the value.
        max_tokens: number of tokens after which the value is cut; None: `EngineConfig.max_value_tokens`.

    Raises:
        ValueError: the kind is none, or a choice without values, with equal ones, or with null.
    """

    text: str
    kind: ValueKind = _ANYTHING
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        kind = self.kind.item if isinstance(self.kind, ListOf) else self.kind
        if not isinstance(kind, ValueKind) or (
            kind is not self.kind and isinstance(kind, ListOf | Grammar | Verbatim | FreeText)
        ):
            raise ValueError(f"{self.text!r}: {self.kind!r} is no kind of a value, or of the items of a list")
        if isinstance(kind, OneOf) and (None in kind.values or not 0 < len(kind.values) == len({*kind.spellings})):
            raise ValueError(f"{self.text!r}: a choice is among different values; null is `nullable`, not one of them")


@dataclass(frozen=True, slots=True)
class Completion:
    """Decoded value of a branch.

    Attributes:
        value: plain JSON; None unless the status is "value". For free text also the text written until it was cut.
        status: "value", "absent" (null), "truncated" (cut), "invalid" (not of its kind) or "error" (not decoded).
        raw: the text as it was written, up to the end of the line.
        num_tokens: number of tokens, including the one that ends the value.
        logprob_mean, logprob_min: over these tokens; natural logarithms of the model's own probabilities.
        probability: share among all possible values if the value was chosen among them; else that of its tokens.
        choice, margin: as in `Value`.
    """

    value: Any
    status: ValueStatus
    raw: str = ""
    num_tokens: int = 0
    logprob_mean: float | None = None
    logprob_min: float | None = None
    probability: float | None = None
    choice: Choice | None = None
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class TrunkCompletions:
    """Completions of one trunk, one per branch, in order. If `error` is set, none of them was decoded.

    `num_prompt_tokens` counts the tokens of the trunk and of its branches' texts.
    """

    branches: tuple[Completion, ...]
    error: str | None = None
    num_trunk_tokens: int = 0
    num_prompt_tokens: int = 0


class AbandonableFuture(MeasuredFuture[Result]):
    """Future of work that may be given up."""

    def __init__(self, abandon: Callable[[], None]) -> None:
        """Set the function that the method `abandon` calls."""
        super().__init__()
        self._abandon = abandon

    def abandon(self) -> None:
        """Drop all that is not decoded yet. The future fails with CancelledError unless it is already done."""
        self._abandon()


class CompletionFuture(AbandonableFuture[list[TrunkCompletions]]):
    """Future of `Engine.complete`: one result per trunk, in order."""


def answer_in_turn(
    executor: Executor, work: Callable[[ExtractionMetrics], list[RecordResult]], name: str
) -> ExtractionFuture:
    """Queue `work` on the executor. It fills in the future's metrics, and its error becomes the future's.

    Raise `EngineError` ("`name` is closed") if the executor is shut down.
    """
    future = ExtractionFuture()

    def run() -> None:
        try:
            future.set_result(work(future.metrics))
        except Exception as error:
            future.set_exception(error)

    try:
        executor.submit(run)
    except RuntimeError as error:
        raise EngineError(f"{name} is closed") from error
    return future


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a record gets no prompt."""

    code: ErrorCode
    message: str


def schema_of(record: Record, schemas: Mapping[str, CategorySchema]) -> CategorySchema | None:
    """Return the schema of the record's category; None if there is none."""
    return schemas.get(record.category) if isinstance(record.category, str) else None


def not_text(record: Record) -> Refusal | None:
    """Return a refusal if the category or a field is not text, such as the NaN of an empty table cell; else None."""
    category, fields = record.category, record.fields
    if not isinstance(category, str):
        return Refusal(ErrorCode.NOT_TEXT, f"the category is {type(category).__name__}, not text")
    if not isinstance(fields, Mapping):
        return Refusal(ErrorCode.NOT_TEXT, f"the fields are {type(fields).__name__}, and not texts by their names")
    for name, text in fields.items():
        if not isinstance(name, str):
            return Refusal(ErrorCode.NOT_TEXT, f"the name of field {name!r} is {type(name).__name__}, not text")
        if not isinstance(text, str):
            return Refusal(ErrorCode.NOT_TEXT, f"field {name!r} is {type(text).__name__}, not text")
        try:
            name.encode()
            text.encode()
        except UnicodeEncodeError as error:
            return Refusal(
                ErrorCode.NOT_TEXT, f"field {name!r} holds half of a surrogate pair at character {error.start}"
            )
    return None


def refuse_constrained(schemas: Mapping[str, CategorySchema], problem: str) -> None:
    """Raise ValueError, with the problem, if an attribute is verbatim or implied."""
    for schema in schemas.values():
        for attribute in schema.attributes:
            if attribute.verbatim or attribute.implied:
                what = "verbatim" if attribute.verbatim else "implied"
                raise ValueError(
                    f"attribute {attribute.name!r} of category {schema.category!r} is {what}, which {problem}"
                )


def check_numbers(attribute: Attribute, numbers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the numbers of `Record.numbers`. Raise ValueError if the attribute is no number, or one is not JSON's."""
    if attribute.type != "number" or attribute.multiple:
        raise ValueError(f"attribute {attribute.name!r} is no single number, and a record has numbers for it")
    if (wrong := next((each for each in numbers if not _JSON_NUMBER.fullmatch(each)), None)) is not None:
        raise ValueError(f"a record's numbers for attribute {attribute.name!r} hold {wrong!r}, which JSON cannot spell")
    return numbers


def asked_attributes(schema: CategorySchema, names: Collection[str] | None) -> list[int]:
    """Return the numbers of the named attributes, in the schema's order. Raise ValueError if one is unknown."""
    found = [index for index, attribute in enumerate(schema.attributes) if names is None or attribute.name in names]
    if names is not None and (not found or len(found) != len(set(names))):
        known = [attribute.name for attribute in schema.attributes]
        near = NearNames(known)
        hints = [f"; {name!r}: {hint}" for name in sorted(set(names) - set(known)) if (hint := near.hint(name))]
        raise ValueError(
            f"category {schema.category!r} has the attributes {', '.join(known)}; wanted are {sorted(names)}"
            + "".join(hints)
        )
    return found


def refused_result(record: Record, refusal: Refusal, schema: CategorySchema | None) -> RecordResult:
    """Return the result of a record that was not decoded: every attribute has the status "error"."""
    values = {attribute.name: error_value() for attribute in schema.attributes} if schema else {}
    return RecordResult(record.id, record.category, values, refusal.message, refusal.code)
