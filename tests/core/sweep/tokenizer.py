"""A tokenizer for tiny models: one token a character."""

from __future__ import annotations

from functools import cache
from typing import Any

import transformers as tf
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

_FIRST = 3
"""Behind padding, begin and end of text."""


@cache
def tiny_tokenizer() -> Any:
    """Of the printable characters and the newline; any other is the last token."""
    characters = ["\n", *map(chr, range(32, 127))]
    ids = {"<pad>": 0, "<s>": 1, "</s>": 2} | {text: _FIRST + index for index, text in enumerate(characters)}
    tokenizer = Tokenizer(models.WordLevel(ids | {"<unk>": _FIRST + len(characters)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
