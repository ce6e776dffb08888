"""A tiny model whose answers differ from prompt to prompt, have all lengths, and show every status.

Some tokens of its vocabulary are whole answers; their output rows are large, so that they often win. Hidden size 64
is what 4-bit and 8-bit weights need.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken
from transformers import LlamaConfig, LlamaForCausalLM

from hpd_core import Attribute, CategorySchema, Record
from tests.tiny_model import build_tokenizer

ANSWERS = [' "red",\n', ' "blue",\n', " null,\n", " 42,\n", " true,\n", ' ["a", "b"],\n', ' "x" and more\n']


def talking_tokenizer() -> Any:
    tokenizer = build_tokenizer()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ANSWERS])
    return tokenizer


def talking_model(tokenizer: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
        "initializer_range": 0.2,
    }
    model = LlamaForCausalLM(LlamaConfig(**{**settings, **options})).to(torch.float32).eval()
    with torch.no_grad():
        model.lm_head.weight[-len(ANSWERS) :] *= 1.75
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(" null,\n")] *= 1.3
    return model


def build_talking_model(folder: Path) -> Path:
    """Writes model and tokenizer to `folder` in transformers' format."""
    tokenizer = talking_tokenizer()
    talking_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


SHOES = CategorySchema(
    category="Shoes",
    attributes=(
        Attribute(name="Brand"),
        Attribute(name="Size", type="number"),
        Attribute(name="Colour", multiple=True),
        Attribute(name="Vegan", type="boolean"),
    ),
)
COFFEE = CategorySchema(
    category="Coffee",
    attributes=(Attribute(name="Roast", type="enum", values=("red", "dark")), Attribute(name="Origin")),
)
SCHEMAS = {"Shoes": SHOES, "Coffee": COFFEE}


def products(count: int, first: int = 0) -> list[Record]:
    words = ["Velor", "red", "running", "light", "soft", "42", "arabica", "beans", "blue", "pack"]
    records = []
    for n in range(first, first + count):
        text = " ".join(words[(n * k + k * k) % len(words)] for k in range(1, 3 + n % 7))
        records.append(
            Record(str(n), "Coffee" if n % 3 == 2 else "Shoes", {"title": f"{text} {n}", "text": text[::-1]})
        )
    return records
