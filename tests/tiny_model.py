"""A tiny random model whose answers are worth parsing: they differ from prompt to prompt and show every status.

Random weights never write JSON. Here some tokens of the vocabulary are whole answers, and their output rows are
large, so that they often win. Hidden size 64 is what 4-bit and 8-bit weights need.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ANSWERS = [' "red",\n', ' "blue",\n', " null,\n", " 42,\n", " true,\n", ' ["a", "b"],\n', ' "x" and more\n']
SPECIAL_TOKENS = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
_CORPUS = [
    "Extract attributes from a product. Answer with JSON: one object with a key for each attribute.\n{\n"
    '"Brand": "red",',
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


def sentencepiece_tokenizer() -> Any:
    """As Llama 2's and Gemma's: spaces are "▁", one is put before every text, rare characters become byte tokens."""
    corpus = [f' "{word}",\n null,\n true,\n false,\n 12.5,\n' for word in ("red", "blue", "dark roast")] * 3
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        limit_alphabet=40,
        show_progress=False,
    )
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    trained.train_from_iterator([text.replace("\n", "") for text in corpus], trainer)
    state = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in state["merges"]]
    tokenizer = Tokenizer(models.BPE(state["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def answering_tokenizer() -> Any:
    tokenizer = build_tokenizer()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ANSWERS])
    return tokenizer


def answering_model(tokenizer: Any, **options: Any) -> Any:
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


def build_tiny_model(folder: Path) -> Path:
    """Writes model and tokenizer to `folder` in transformers' format."""
    tokenizer = answering_tokenizer()
    answering_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
