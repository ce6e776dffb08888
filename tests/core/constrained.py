"""Constraints said another way: a regular expression a type, matched against the text so far, token by token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import regex
from transformers.convert_slow_tokenizer import bytes_to_unicode

from hpd_core import Attribute
from hpd_core.text.endings import Endings
from hpd_core.text.member_tries import KindTables
from hpd_core.text.number_atoms import VULGAR_FRACTIONS
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import attribute_kind
from tests.core.oracle import CAUSAL, Choices, choose_member

# Of tokens that hold a part of a letter.
_BYTES = {letter: byte for byte, letter in bytes_to_unicode().items()}


def answer_pattern(attribute: Attribute) -> regex.Pattern[str] | None:
    """What a whole answer looks like, newline included."""
    if attribute.is_text:
        return None
    number = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
    with_exponent, grouped = (
        r"[1-9][0-9]*(?:[.,][0-9]+)?|0[.,][0-9]+|\.[0-9]+|[1-9][0-9]{0,2}(?:(?:\.[0-9]{3})+,|(?:,[0-9]{3})+\.)[0-9]+"
        r"|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}\.[0-9]+",
        r"0|[1-9][0-9]{0,2}(?:(?:\.[0-9]{3})+|(?:,[0-9]{3})+)|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}",
    )
    vulgar = "|".join(VULGAR_FRACTIONS)
    fraction = rf"[1-9][0-9]{{0,2}}(?:/(?:[234568]|16|32|64)|{vulgar})|{vulgar}"
    written = f"-?(?:(?:{with_exponent})(?:[eE][-+]?[0-9]{{1,2}})?|{grouped}|{fraction})"
    units = (attribute.unit.want, *attribute.unit.accept) if attribute.unit else ()
    unit = f"(?: ?(?:{'|'.join(regex.escape(_escaped(name)) for name in units)}))?" if units else ""
    item = {
        "boolean": 'true|false|"(?:true|false|True|False|yes|no|Yes|No)"',
        "number": f'{number if attribute.multiple else written}|"{written}{unit}"',
        "enum": "|".join(regex.escape(f'"{_escaped(text)}"') for text in _spellings(attribute)),
    }[attribute.type]
    value = rf"\[(?:(?:{item})(?:, (?:{item}))*)?\]" if attribute.multiple else item
    return regex.compile(rf" {{0,2}}(?:null|{value}),?\n")


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _spellings(attribute: Attribute) -> list[str]:
    """The labels, and the synonyms that one member alone has and that are no label."""
    values = attribute.values or ()
    labels = [member.label for member in values]
    synonyms = {synonym for member in values for synonym in member.synonyms} - set(labels)
    return [*labels, *(text for text in synonyms if sum(text in member.synonyms for member in values) == 1)]


def text_choices(attribute: Attribute, tokenizer: Any) -> Choices:
    """The tokens after which the text is still the beginning of an answer, byte by byte."""
    pattern = answer_pattern(attribute)
    return (lambda tokens: None) if pattern is None else choices_by(pattern.pattern, tokenizer)


def choices_by(pattern: str, tokenizer: Any) -> Choices:
    """The tokens after which the text is still the beginning of what `pattern` matches, byte by byte."""
    in_bytes = regex.compile(pattern.encode())
    vocabulary = _vocabulary(tokenizer)

    def allowed(tokens: Sequence[int]) -> list[int]:
        text = b"".join(vocabulary.get(token, b"") for token in tokens)
        return [
            token
            for token, written in vocabulary.items()
            if written and in_bytes.fullmatch(text + written, partial=True)
        ]

    return allowed


def new_tables(tokenizer: Any, vocab_size: int | None = None) -> KindTables:
    """Tables in which nothing is scored."""
    size = vocab_size or len(tokenizer)
    return KindTables(tokenizer, size, Endings.none(size), 0)


def start_of(constraints: KindTables, attribute: Attribute) -> int:
    """The state in which an answer begins."""
    return constraints.lease(attribute_kind(attribute), attribute.name).kept[0]


def answer_lines(attribute: Attribute) -> list[tuple[str, str | None]]:
    """All lines that a closed attribute may be answered with, and the member that each means; None: null."""
    lines: list[tuple[str, str | None]] = [(" null,\n", None)]
    if attribute.type == "boolean":
        lines += [(f" {text},\n", text) for text in ("true", "false")]
        words = {"true": ("true", "True", "yes", "Yes"), "false": ("false", "False", "no", "No")}
        return lines + [(f' "{word}",\n', text) for text, each in words.items() for word in each]
    labels = {
        synonym: member.label for member in attribute.values or () for synonym in (member.label, *member.synonyms)
    }
    labels |= {member.label: member.label for member in attribute.values or ()}
    return lines + [(f' "{_escaped(text)}",\n', labels[text]) for text in _spellings(attribute)]


@dataclass(frozen=True)
class LikeliestAnswer:
    """The likeliest spelling of the answer, the log-probabilities of its tokens, the member's share; None: null."""

    tokens: list[int]
    logprobs: list[float]
    member: str | None
    share: float


def likeliest_answer(
    model: Any,
    ids: Sequence[int],
    attribute: Attribute,
    tokenizer: Any,
    endings: Endings,
    both_ways: range = CAUSAL,
    threshold: float | None = None,
) -> LikeliestAnswer:
    """The answer of a closed attribute behind `ids`, by a forward for every spelling."""
    lines, meant = zip(*answer_lines(attribute), strict=True)
    encoded = SegmentTokenizer(tokenizer).encode_text(lines)  # as training lays them out
    members = list(dict.fromkeys(meant))  # null is the first
    spellings = [tokens[: endings.length(tokens, True)] for tokens in encoded]
    found = choose_member(model, ids, spellings, [members.index(member) for member in meant], both_ways, threshold)
    tokens, logprobs = found.spellings[found.member][0]
    return LikeliestAnswer(list(tokens), logprobs, members[found.member], found.shares[found.member])


@cache
def _vocabulary(tokenizer: Any) -> dict[int, bytes]:
    """Per token that is no control token, what it adds."""
    # Gemma has its line break among the added tokens; white space is text all the same.
    added = {token for token, entry in tokenizer.added_tokens_decoder.items() if entry.content.strip()}
    controls = set(tokenizer.all_special_ids) | added
    return {token: _written(tokenizer, token) for token in range(len(tokenizer)) if token not in controls}


def _written(tokenizer: Any, token: int) -> bytes:
    before = tokenizer("a", add_special_tokens=False)["input_ids"]  # decoders may leave out a space in front of all
    text: str = tokenizer.decode([*before, token]).removeprefix(tokenizer.decode(before))
    if "\ufffd" not in text:
        return text.encode()
    name: str = tokenizer.convert_ids_to_tokens(token)
    if name.startswith("<0x"):
        return bytes([int(name[3:5], 16)])
    return bytes(_BYTES[letter] for letter in name)
