"""What becomes of one model type: built, decoded by the engine, and compared with the oracle."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import transformers as tf

from hpd_core.attention import kv_cache
from hpd_core.config import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.errors import ModelError
from hpd_core.families.table import picked_by, refuse_unsupported
from hpd_core.models import text_towers
from hpd_core.models.description import cache_shape, max_positions
from hpd_core.models.steering import attach, verify
from tests.core.helpers import (
    Case,
    assert_equals_oracle,
    decode,
    random_case,
    random_endings,
    random_ids,
    without_constraints,
)
from tests.core.sweep.configs import REACHES, tiny_config
from tests.core.sweep.tokenizer import tiny_tokenizer

Kind = Literal["exact", "refused", "wrong", "crash", "not built", "no oracle"]

LAYOUTS = ("tree", "stacked")

_POISON = 1e4
"""In cache columns that hold nothing: who reads one is found."""


_MOST_PARAMETERS = 150_000_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one model type, layout and reach.

    Attributes:
        kind: `no oracle` where the model's own plain forward takes no such mask, so that nothing can be compared.
        reason: why it is not exact; empty if it is.
    """

    type: str
    layout: str
    reach: str
    kind: Kind
    reason: str = ""


def build(name: str, reach: int) -> Any:
    """A fresh model in fp32, with wide weights. Raises whatever its code raises."""
    torch.manual_seed(0)
    config = tiny_config(name, reach)
    config._experts_implementation = "eager"
    maker = tf.AutoModelForCausalLM
    if type(config) not in maker._model_mapping:
        maker = tf.AutoModelForImageTextToText
    with torch.device("meta"):
        size = _made(maker, config).num_parameters()
    if size > _MOST_PARAMETERS:
        raise ValueError(f"it has {size:,} parameters: what makes it large is not in tests/core/sweep/configs.py")
    model = _made(maker, config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            _spread(key, parameter)
    return model.eval()


def _made(maker: Any, config: Any, **options: Any) -> Any:
    """The model, or its text tower alone where others want packages that are not here."""
    try:
        return maker.from_config(config, **options)
    except ImportError:
        kind = text_towers.without_towers(text_towers.multimodal_class(config))
        return text_towers.alone(kind._from_config(config, **options))


def _spread(name: str, parameter: torch.Tensor) -> None:
    """What is alike at first, or small: who takes the wrong one is to be found."""
    if name.endswith(("A_log", "dt_bias", ".D")) or not parameter.is_floating_point():
        return
    if parameter.dim() < 2:
        parameter.add_(0.3 * torch.randn_like(parameter))
    elif float(parameter.std()) < 0.1:
        parameter.normal_(0, 0.3)


def outcomes(name: str, layouts: Sequence[str] = LAYOUTS, reaches: Sequence[str] = tuple(REACHES)) -> list[Outcome]:
    """Of one model type, for all layouts and reaches."""
    return [_outcome(name, layout, reach) for reach in reaches for layout in layouts]


def _outcome(name: str, layout: str, reach: str) -> Outcome:
    kv_cache.UNUSED_FILL = _POISON
    try:
        refuse_unsupported(tiny_config(name, REACHES[reach]))
        text_towers.multimodal_class(tiny_config(name, REACHES[reach]))
        model = build(name, REACHES[reach])
        oracle = copy.deepcopy(model)
        with torch.inference_mode():
            oracle(input_ids=torch.arange(5, 15)[None], use_cache=False)
    except ModelError as error:
        return Outcome(name, layout, reach, "refused", _said(error))
    except Exception as error:
        return Outcome(name, layout, reach, "not built", _said(error))
    # The same texts for a type in every run, whatever runs beside it.
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]))
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases: list[Case] = [without_constraints(random_case(rng, layout, prefixes, branches=3, k_max=6)) for _ in range(4)]
    config = EngineConfig(max_prompts_per_cohort=3, max_tokens_per_step=64, layout=layout)
    limit = max_positions(model.config)
    longest = max(case.prompt().layout.num_positions for case in cases)
    try:
        if text_towers.multimodal_class(model.config) is not None:
            model = text_towers.alone(model)
        attach(model)
        if limit is not None and limit < longest:
            names = " or ".join(f"`{' x '.join(each)}`" for each in picked_by(model.config))
            return Outcome(name, layout, reach, "refused", f"texts of more positions than {names} are refused")
        decoder = Decoder(model, endings, config, cache_shape(model))
        verify(model, tiny_tokenizer(), decoder)
        decoder.fit()
        prompts = decode(model, cases, endings, config)
    except ModelError as error:
        return Outcome(name, layout, reach, "refused", _said(error))
    except Exception as error:
        return Outcome(name, layout, reach, "crash", _said(error))
    try:
        for case, prompt in zip(cases, prompts, strict=True):
            assert_equals_oracle(oracle, case, prompt, endings)
    except AssertionError as error:
        return Outcome(name, layout, reach, "wrong", _said(error))
    except Exception as error:
        return Outcome(name, layout, reach, "no oracle", _said(error))
    return Outcome(name, layout, reach, "exact")


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]
