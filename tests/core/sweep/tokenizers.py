"""Tiny tokenizers of every kind that people's models have, trained here on a few lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import transformers as tf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import bytes_to_unicode

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}]\n{{ message['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]\n{% endif %}"
)
_WORDS = ("red", "blue", "dark roast", "Velor", "running shoe", "Crème brûlée", "日本", "12.5", "1,250", "3/4", "42 EU")
CORPUS = [
    *(f'"Brand": "{word}",\n"Size": null,\n"Vegan": true,\n\n' for word in _WORDS),
    *(f'["{word}", "{word}"],\n' for word in _WORDS),
    *(f"title: {word} {word}\ndescription: the {word}, for men and women\n\n" for word in _WORDS),
    "Extract attributes from a product. Answer with JSON: one object with a key for each attribute.\n{\n}\n",
] * 4

SPLITS: Mapping[str, str] = {
    # cl100k's, which Llama 3 has.
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    # o200k's, which GPT-OSS has.
    "gpt_oss": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # Kimi's: runs of Han first, then as o200k's.
    "kimi": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{M}]*[\p{Ll}\p{Lm}\p{M}]+|[^\r\n\p{L}\p{N}]?"
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # Qwen's: one digit at a time.
    "qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
}


def _wrapped(tokenizer: Tokenizer, **options: Any) -> Any:
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=_TEMPLATE, **{**names, **options})


def byte_level(pattern: str | None = None, *, normalizer: Any = None, space: bool = False, size: int = 420) -> Any:
    """GPT-2's kind, and tiktoken's, whose texts are split by a pattern; where it lets them, tokens hold line breaks."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    of_bytes = pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=pattern is None)
    splits = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, of_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _wrapped(tokenizer)


def unigram(scheme: str) -> Any:
    """SentencePiece's, with bytes for what it has no piece for.

    Args:
        scheme: where a space is put before a text: `always`, `first` or `never`.
    """
    pieces = [("<pad>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<unk>", -20.0), *((each, -15.0) for each in _BYTES)]
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    trained.train_from_iterator([line for text in CORPUS for line in text.split("\n") if line], trainer)
    known = {piece for piece, _ in pieces}
    learned = sorted(trained.get_vocab())
    pieces += [(piece, -5.0 - 0.1 / len(piece)) for piece in learned if piece not in known]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    decoder = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    strips = [] if scheme == "never" else [decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence([*decoder, *strips])
    return _wrapped(tokenizer)


def pairs(*, prepends: bool) -> Any:
    """Llama 2's (a space before every text) and Gemma's BPE, with bytes for what it has no piece for."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=440, special_tokens=[*_SPECIAL, *_BYTES], limit_alphabet=60, show_progress=False
    )
    lines = [line for text in CORPUS for line in text.split("\n")]
    trained.train_from_iterator(lines, trainer)
    learned = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in learned["merges"]]
    tokenizer = Tokenizer(models.BPE(learned["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    before = [normalizers.Prepend("▁")] if prepends else []
    tokenizer.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", "▁")])
    strips = [decoders.Strip(" ", 1, 0)] if prepends else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strips]
    )
    return _wrapped(tokenizer)


class InPython(tf.PreTrainedTokenizer):  # type: ignore[misc]
    """As Kimi's, which its checkpoint brings along as code: tokens are bytes as letters, written by transformers."""

    def __init__(self, fast: Any, **names: Any) -> None:
        self._backend_of_bytes = fast.backend_tokenizer
        self._ids = fast.get_vocab()
        self._tokens = {index: token for token, index in self._ids.items()}
        self._bytes = {letter: byte for byte, letter in bytes_to_unicode().items()}
        super().__init__(**names)

    @property
    def vocab_size(self) -> int:
        return len(self._ids)

    def get_vocab(self) -> dict[str, int]:
        return {**self._ids, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        tokens: list[str] = self._backend_of_bytes.encode(text, add_special_tokens=False).tokens
        return tokens

    def _convert_token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def _convert_id_to_token(self, index: int) -> str | None:
        return self._tokens.get(index)

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return bytearray(self._bytes[letter] for letter in "".join(tokens)).decode("utf-8", "replace")


def in_python() -> Any:
    """Kimi's."""
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return InPython(byte_level(SPLITS["kimi"]), chat_template=_TEMPLATE, **names)


def with_more_tokens(tokenizer: Any) -> Any:
    """Line breaks within tokens, runs of spaces, a command and a word: added behind the vocabulary."""
    texts = ["\n\n", ",\n", '",\n', '"\n', "null,\n", "    "]
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in texts])
    tokenizer.add_tokens([AddedToken("<|tool|>", normalized=False, special=True), AddedToken("shoe", special=False)])
    return tokenizer


def without_begin(tokenizer: Any) -> Any:
    """Of models that have no token for the begin of a text."""
    tokenizer.bos_token = None
    return tokenizer


KINDS: Mapping[str, Callable[[], Any]] = {
    "gpt2": byte_level,
    "gpt2, a space before": lambda: byte_level(space=True),
    **{name: lambda pattern=pattern: byte_level(pattern) for name, pattern in SPLITS.items()},
    "kimi, in Python": in_python,
    "no bytes beyond": lambda: byte_level(SPLITS["llama3"], size=262),
    "nfc": lambda: byte_level(SPLITS["qwen"], normalizer=normalizers.NFC()),
    "nfkc": lambda: byte_level(normalizer=normalizers.NFKC()),
    "lowercase": lambda: byte_level(normalizer=normalizers.Lowercase()),
    "more tokens": lambda: with_more_tokens(byte_level(SPLITS["llama3"])),
    "no begin": lambda: without_begin(byte_level()),
    "unigram, always": lambda: unigram("always"),
    "unigram, first": lambda: unigram("first"),
    "unigram, never": lambda: unigram("never"),
    "llama2": lambda: pairs(prepends=True),
    "gemma": lambda: pairs(prepends=False),
    "gemma, more tokens": lambda: with_more_tokens(pairs(prepends=False)),
}


@cache
def tiny(kind: str) -> Any:
    """One of `KINDS`."""
    return KINDS[kind]()


def normalized(tokenizer: Any, text: str) -> str:
    """What a tokenizer's normalizer makes of a text, but for how it writes spaces."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    if normalizer is None or any(kind in repr(normalizer) for kind in ("Replace", "Prepend")):
        return text
    found: str = normalizer.normalize_str(text)
    return found
