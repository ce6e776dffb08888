"""The judge's five classes (the paper's Figure 11, arXiv 2604.26209) and its LLM-F1 (appendix E).

    LLM-P  = (C + CN) / (C + CN + H + I)
    LLM-R  = (C + CN) / (C + CN + M + I)
    LLM-F1 = 2 LLM-P LLM-R / (LLM-P + LLM-R)

C correct, CN correct null, I incorrect, M missing, H hallucination. Answers that a judge leaves undecided are in none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from pipelines.quality.scoring import NUM_RESAMPLES, SEED, RateEstimates, Rates, estimate_rates

Class = Literal["correct", "correct null", "incorrect", "missing", "hallucination"]
CLASSES: tuple[Class, ...] = get_args(Class)
RIGHT: tuple[Class, ...] = ("correct", "correct null")

_OF_NULL: tuple[Class, ...] = ("correct null", "missing")
# A value such as "none" says that there is none.
_OF_VALUE: tuple[Class, ...] = ("correct", "correct null", "incorrect", "hallucination")
_MAX_DRAWN = 4_000_000  # weights of a bootstrap that are in memory at a time

_Numbers = npt.NDArray[Any]


def read_class(text: object) -> Class | None:
    """Parse the class that a judge wrote, in any case and with any word separators; None if it is not one."""
    if not isinstance(text, str):
        return None
    folded = re.sub(r"[\s_-]+", " ", text.casefold()).strip(" .\"'")
    return next((each for each in CLASSES if each == folded), None)


def fits(found: Class, is_null: bool) -> bool:
    """Return whether an answer can be of this class: a null cannot be incorrect, and a value cannot be missing."""
    return found in (_OF_NULL if is_null else _OF_VALUE)


def count_classes(classes: Iterable[Class | None]) -> dict[Class, int]:
    """Count the answers of each class; None (undecided) counts in none."""
    found = list(classes)
    return {each: found.count(each) for each in CLASSES}


def llm_rates(counts: Sequence[int]) -> Rates | None:
    """Return LLM-P, LLM-R and LLM-F1 of counts in the order of `CLASSES`; None if nothing was decided.

    A rate with a zero numerator or denominator is 0.
    """
    return Rates(*(float(rate) for rate in _rates(np.asarray(counts)))) if any(counts) else None


def llm_estimates(
    by_product: Sequence[Sequence[int]], num_resamples: int = NUM_RESAMPLES, seed: int = SEED
) -> RateEstimates | None:
    """Return the rates over all products' counts, with 95% intervals from a bootstrap over the products.

    Products are resampled, because answers about one product are dependent. Products without a decided answer are left
    out; None if there are no others.
    """
    counts = np.asarray([each for each in by_product if any(each)], dtype=np.int64).reshape(-1, len(CLASSES))
    rates = llm_rates(counts.sum(axis=0).tolist())
    if rates is None:
        return None
    generator, number = np.random.default_rng(seed), len(counts)
    step = max(1, _MAX_DRAWN // number)
    sums = [
        generator.multinomial(number, np.full(number, 1 / number), size=min(step, num_resamples - start)) @ counts
        for start in range(0, num_resamples, step)
    ]
    return estimate_rates(rates, _rates(np.concatenate(sums)))


def _rates(counts: _Numbers) -> npt.NDArray[np.float64]:
    """Compute LLM-P, LLM-R and LLM-F1: (..., 5) counts -> (..., 3) rates."""
    correct, null, incorrect, missing, made_up = (counts[..., column] for column in range(len(CLASSES)))
    right = correct + null
    given, wanted = right + made_up + incorrect, right + missing + incorrect
    # 2 R / (G + W) is 2 P R / (P + R) in a form that needs no case for P + R = 0.
    return np.stack(
        [right / np.maximum(given, 1), right / np.maximum(wanted, 1), 2 * right / np.maximum(given + wanted, 1)],
        axis=-1,
    )
