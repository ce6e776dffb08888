"""Builds a tiny random model whose answers are worth parsing.

Random weights never write JSON. Here the output rows of a few tokens are made large, so that the model often
closes a value, says null, or writes a short string: every status occurs, in a way that depends on the prompt.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL_TOKENS = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
_CORPUS = [
    'Extract attributes from a product. Answer with JSON: one object with a key for each attribute.\n{\n"Brand": "red",',
    '"Brand": null,\n"Colour": "blue",\n"Size": "42",\n"Material": null,\n"Pack": "small",\n"Weight": 12,\n',
    "title: Velor running shoe red 42\ndescription: light and soft, for men and women\nProduct: Attributes: list",
]
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of 400 tokens; it can encode any text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 3, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|im_end|>", chat_template=_CHAT_TEMPLATE
    )
    return wrapped


def build_tiny_model(folder: Path, seed: int = 0) -> Path:
    """Writes model and tokenizer to `folder` in transformers' format; returns it."""
    tokenizer = build_tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
        tie_word_embeddings=False,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).to(torch.float32).eval()
    with torch.no_grad():
        for text, factor in (("\n", 3.0), (' "', 2.5), ('",', 2.5), (" null", 2.5), ("red", 1.6), ("blue", 1.6)):
            model.lm_head.weight[tokenizer(text)["input_ids"][0]] *= factor
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
