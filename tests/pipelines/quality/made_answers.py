"""Labelled answers whose true probabilities are known."""

from __future__ import annotations

import math

import numpy as np

from hpd_core import Attribute
from pipelines.quality.answer_features import AnswerFeatures, LabelledAnswer, Score, features_of
from pipelines.quality.calibration_file import CalibratedModel, Calibration, LabelledAttribute, Platt

MODEL = CalibratedModel("small", "sha256:1", "sha256:2", "prompt", "hpd", "tree", None, 64, "causal")


def made_calibration(
    model: CalibratedModel, score: Score, attributes: dict[str, dict[str, LabelledAttribute]] | None = None
) -> Calibration:
    """A calibration whose confidence is the score's probability."""
    curve = Platt(slope=1.0, intercept=0.0)
    return Calibration(model=model, score=score, curve=curve, attributes=attributes or {})


def answer(
    probability: float = 0.8, name: str = "Brand", text: str = "Velor", match: str | None = "exact"
) -> AnswerFeatures:
    row = {
        "category": "Shoes",
        "attribute": name,
        "status": "value",
        "value_raw": text,
        "evidence": [] if match is None else [{"match": match}],
        "norm_status": "ok",
        "probability": probability,
        "num_tokens": 3,
        "logprob_mean": math.log(probability) / 3,
        "logprob_min": math.log(probability),
    }
    return features_of(row, Attribute(name=name))


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
            features = answer(said, f"a{number}", "x" * (1 + number), "exact" if grounded else None)
            found.append(LabelledAnswer(f"p{product}", "d", features, bool(draws.random() < true)))
            truth.append(true)
    return found, truth
