"""Labelled answers whose true probabilities are known."""

from __future__ import annotations

import math

import numpy as np

from pipelines.quality.answer_features import NOWHERE, AnswerFeatures, LabelledAnswer
from pipelines.quality.calibration_file import CalibratedModel

MODEL = CalibratedModel("small", "sha256:1", "sha256:2", "prompt", "hpd", "tree", None, 64, "causal")


def answer(probability: float = 0.8, attribute: str = "Brand", **changes: object) -> AnswerFeatures:
    cells: dict[str, object] = {
        "category": "Shoes",
        "attribute": attribute,
        "type": "string",
        "status": "value",
        "choice": None,
        "probability": probability,
        "margin": None,
        "logprob_mean": math.log(probability) / 3,
        "logprob_min": math.log(probability),
        "num_tokens": 3,
        "text": "Velor",
        "evidence_kinds": ("exact",),
        "norm_status": "ok",
    }
    return AnswerFeatures(**{**cells, **changes})  # type: ignore[arg-type]


def made_answers(
    seed: int, num_products: int, attributes: int = 4, *, honest: bool = False
) -> tuple[list[LabelledAnswer], list[float]]:
    """An answer to each attribute of each product, and the true probability of each to be right.

    The model is too sure of what stands nowhere in the text and of every second attribute. `honest`: it is not.
    """
    draws = np.random.default_rng(seed)
    found, truth = [], []
    for product in range(num_products):
        for number in range(attributes):
            said = float(draws.beta(4, 1.2))
            said = min(0.999, max(0.01, said))
            grounded = bool(draws.random() < 0.8)
            odds = math.log(said / (1 - said))
            if not honest:
                odds += (0.8 if grounded else -1.5) - (1.0 if number % 2 else 0.0)
            true = 1 / (1 + math.exp(-odds))
            features = answer(
                said, f"a{number}", evidence_kinds=("exact" if grounded else NOWHERE,), text="x" * (1 + number)
            )
            found.append(LabelledAnswer(f"p{product}", "d", features, bool(draws.random() < true)))
            truth.append(true)
    return found, truth
