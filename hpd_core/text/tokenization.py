"""Conversion of text to ids and back. Catalog text can never become a control token."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from hpd_core.errors import PromptError
from hpd_core.text.endings import Endings, is_telling
from hpd_core.text.template import Piece

_CHARACTERS = "aZéя中あ한ก1²\"'-.,\\&_😀"
_OF_LETTERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")
"""Normalizers that change letters and their marks independently of the text after the next space."""
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


class SegmentTokenizer:
    """Tokenizer of a prompt's pieces, which are encoded separately and joined as ids.

    Untrusted text is cut inside every control token that is written out in it ("<|im_end|>" becomes "<" and
    "|im_end|>"), so the tokenizer sees ordinary characters only. Whitespace-only added tokens (some vocabularies
    have runs of spaces) are not control tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._backend = _plain_backend(tokenizer)
        self._within = None if self._backend is None else _without_space_before(self._backend)
        # Tokenizers in Python fail on others.
        self._known_ids = None if self._backend is not None else frozenset(tokenizer.get_vocab().values())
        added = {token.content: index for index, token in tokenizer.added_tokens_decoder.items()}
        # A byte-fallback or space run is text; everything else that is matched as a whole steers the model.
        self.control_tokens = {text: index for text, index in added.items() if text.strip()}
        self._control_ids = frozenset(self.control_tokens.values()) | frozenset(tokenizer.all_special_ids)
        # An unknown character is not a command.
        self._control_ids -= {tokenizer.unk_token_id}
        literals = sorted((re.escape(text) for text in self.control_tokens), key=len, reverse=True)
        self._control_pattern = re.compile("|".join(literals)) if literals else None

    @cached_property
    def encodes_words_apart(self) -> bool:
        """Whether a text's ids are those of its parts, wherever it is cut before a single space between characters.

        True if the pre-tokenizer cuts there whatever the characters, and treats each part as it does within the whole
        (one by scripts drops the first space), and no normalizer changes more than letters.
        """
        backend = self._within or self._backend
        if backend is None or backend.pre_tokenizer is None or backend.truncation or backend.padding:
            return False
        if backend.normalizer is not None and json.loads(backend.normalizer.__getstate__())["type"] not in _OF_LETTERS:
            return False
        if any(re.search(r"\s", text) for text in self.control_tokens):
            return False
        cuts = backend.pre_tokenizer.pre_tokenize_str

        def is_cut(before: str, behind: str) -> bool:
            whole = cuts(before + behind)
            is_there = any(place[0] == len(before) for _, place in whole)
            return is_there and [part for part, _ in whole] == [part for part, _ in [*cuts(before), *cuts(behind)]]

        return all(is_cut(before, f" {behind}") for before in _CHARACTERS for behind in _CHARACTERS)

    def encode_pieces(self, pieces: Iterable[Piece], *, begins: bool = False) -> list[int]:
        """Return the ids of `pieces`, concatenated.

        Args:
            begins: whether they begin the prompt.

        Raises:
            PromptError: a piece that is not trusted becomes a control token even when cut.
        """
        ids: list[int] = []
        for piece in pieces:
            if piece.trusted:
                ids += self.encode_trusted(piece.text, begins=begins and not ids)
            else:
                ids += self.encode_schema_text([piece.text])[0]
        return ids

    def encode_schema_text(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts of a schema as `encode_text` does.

        Raises:
            PromptError: a text becomes a control token even when cut.
        """
        encoded = self.encode_text(texts)
        for text, ids in zip(texts, encoded, strict=True):
            if self.has_control(ids):
                raise PromptError(f"the tokenizer makes control tokens of the schema's text {text[:80]!r}")
        return encoded

    def encode_trusted(self, text: str, *, begins: bool = False) -> list[int]:
        """Return the ids of a trusted text; control tokens in it are encoded as such.

        Args:
            begins: whether it begins the prompt.
        """
        if self._within is None or begins:
            return self._encode([text])[0] if text else []
        control = None if self._control_pattern is None else self._control_pattern.search(text)
        start = len(text) if control is None else control.start()
        # After a control token the model expects what its tokenizer makes of the start of a text.
        return [*self._encode_within([text[:start]])[0], *self.encode_trusted(text[start:], begins=True)]

    def encode_text(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of untrusted texts, one list per text; control tokens written out in them are cut."""
        pieces: list[str] = []
        counts: list[int] = []
        for text in texts:
            parts = self.split_control(text)
            pieces += parts
            counts.append(len(parts))
        encoded = iter(self._encode_within(pieces) if pieces else [])
        return [[index for _ in range(count) for index in next(encoded)] for count in counts]

    def has_control(self, ids: Iterable[int]) -> bool:
        """Return whether a control token is among `ids`."""
        return not self._control_ids.isdisjoint(ids)

    def split_control(self, text: str) -> list[str]:
        """Split `text` into parts that do not contain a control token's text; joined they are `text` again."""
        if not text:
            return []
        if self._control_pattern is None:
            return [text]
        parts: list[str] = []
        start = 0
        while match := self._control_pattern.search(text, start):
            parts.append(text[start : match.start() + 1])
            start = match.start() + 1
        if start < len(text):
            parts.append(text[start:])
        return parts

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of generated ids, without special tokens and ids unknown to the tokenizer.

        Spaces are kept as they are.
        """
        known = self._known_ids
        return [
            self.tokenizer.decode(
                ids if known is None else [index for index in ids if index in known],
                skip_special_tokens=True,
                clean_up_tokenization_spaces=False,
            )
            for ids in sequences
        ]

    def endings(self, vocab_size: int) -> Endings:
        """Return the effect of each id on the value that it is written into.

        Args:
            vocab_size: rows of the logits; may exceed the tokenizer's own vocabulary (padding).
        """
        size = min(vocab_size, len(self.tokenizer))
        tokens = self.tokenizer.convert_ids_to_tokens(list(range(size)))
        silent = {*range(size, vocab_size), *(index for index, token in enumerate(tokens) if token is None)}
        silent |= set(self.tokenizer.all_special_ids)  # and others that `decode` leaves out:
        silent |= {index for index, added in self.tokenizer.added_tokens_decoder.items() if added.special}
        # NOTE: decoding one id at a time is slow for 250,000 ids. What tells can only be in a token that shows it, in
        # the byte-level alphabet (where "Ċ" is a newline and "Ġ" a space, as "▁" is elsewhere) or as a byte token;
        # those candidates are decoded to be sure.
        texts, bytes_alone = {}, []
        # If a space is put before texts, the decoder drops one: then decode tokens after a letter.
        letter = [] if self._within is None else self.encode_text(["a"])[0]
        for index, token in enumerate(tokens):
            if index in silent:
                continue
            is_byte = _BYTE_TOKEN.fullmatch(token) is not None
            if is_byte or is_telling(token.replace("Ċ", "\n").replace("Ġ", " ").replace("▁", " ")):
                texts[index] = self.decode([[*letter, index]])[0].removeprefix("a" if letter else "")
                if is_byte and is_telling(texts[index]):
                    bytes_alone.append(index)
        return Endings.of_texts(vocab_size, texts, [index for index in silent if index < vocab_size], bytes_alone)

    def _encode_within(self, texts: list[str]) -> list[list[int]]:
        """Encode texts that follow others, without the space that some tokenizers put before every text."""
        if self._within is None:
            return self._encode(texts)
        return [encoding.ids for encoding in self._within.encode_batch_fast(texts, add_special_tokens=False)]

    def _encode(self, texts: list[str]) -> list[list[int]]:
        backend = self._backend
        if backend is not None and backend.truncation is None and backend.padding is None:
            # The ids alone: offsets, masks and their Python objects cost a third more.
            return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
        ids: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return ids


def _plain_backend(tokenizer: Any) -> Any:
    """Return the tokenizer's own encoder if transformers only wraps it; None if a class changes encoding."""
    kind = type(tokenizer)
    is_plain = isinstance(tokenizer, PreTrainedTokenizerFast) and (
        kind._encode_plus is PreTrainedTokenizerFast._encode_plus and kind.__call__ is PreTrainedTokenizerFast.__call__
    )
    return tokenizer.backend_tokenizer if is_plain else None


def _without_space_before(backend: Any) -> Tokenizer | None:
    """Return a copy of an encoder (as Llama 2's) that puts no space before texts; None if it puts none anyway."""
    parts = {name: getattr(backend, name) for name in ("normalizer", "pre_tokenizer")}
    states = {name: json.loads(part.__getstate__()) for name, part in parts.items() if part is not None}
    found = {name: _without_space(state) for name, state in states.items()}
    if found == states:
        return None
    changed = Tokenizer.from_str(json.dumps(json.loads(backend.to_str()) | found))
    changed.no_truncation()
    changed.no_padding()
    return changed


def _without_space(state: dict[str, Any]) -> dict[str, Any] | None:
    """Return an encoder part that puts no space before texts; None if it did nothing else."""
    kind = state["type"]
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        return state | {"prepend_scheme": "never"}
    if kind == "ByteLevel":
        return state | {"add_prefix_space": False}
    if kind == "Sequence":
        (name,) = state.keys() - {"type"}
        return state | {name: [part for each in state[name] if (part := _without_space(each)) is not None]}
    return state
