"""Which model types the sweep is about: all that transformers counts as causal language models, and text towers."""

from __future__ import annotations

from typing import Literal

from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

Kind = Literal["text", "multimodal"]

ENCODERS = frozenset(
    {
        "bert",
        "bert-generation",
        "big_bird",
        "camembert",
        "data2vec-text",
        "electra",
        "ernie",
        "megatron-bert",
        "reformer",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "xlm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xlnet",
        "xmod",
    }
)
"""Encoders that can be made to decode; nobody has trained one to answer."""

ENCODER_DECODERS = frozenset(
    {
        "bart",
        "bigbird_pegasus",
        "blenderbot",
        "blenderbot-small",
        "blip",
        "cpmant",
        "evolla",
        "florence2",
        "git",
        "kosmos-2",
        "kosmos-2.5",
        "marian",
        "mbart",
        "moshi",
        "musicgen",
        "musicgen_melody",
        "mvp",
        "pegasus",
        "pi0",
        "pix2struct",
        "plbart",
        "pp_formulanet",
        "prophetnet",
        "t5gemma2",
        "trocr",
        "udop",
        "vision-encoder-decoder",
        "whisper",
    }
)
"""Whose decoder reads what an encoder made, or cannot do without an image or sound."""

OTHERS = frozenset({"blt", "diffusion_gemma", "gemma4_assistant", "gemma4_unified_assistant"})
"""What does not decode tokens from left to right on its own: bytes in patches that another model cuts, diffusion, and
drafters that read another model's cache."""


def model_types() -> dict[str, Kind]:
    """Every type that decodes text from left to right, and whether it reads more than text."""
    text = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    images = auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    left_out = ENCODERS | ENCODER_DECODERS | OTHERS
    names = sorted(name for name in {*text, *images} - left_out if name in CONFIG_MAPPING)
    return {name: "multimodal" if _has_tower(name) else "text" for name in names}


def _has_tower(name: str) -> bool:
    parts = CONFIG_MAPPING[name].sub_configs
    return any(part in parts for part in ("text_config", "llm_config", "thinker_config"))
