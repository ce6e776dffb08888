"""Cost of the larger model at a threshold, from a run in which it was asked for everything.

An engine's time is split by the tokens that it forwards. The text of a product with any question is forwarded once.
Each attribute adds its key, its scored tokens and its answer; the tokens of unasked attributes are subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.cascading.both_answers import AskedAnswer
from pipelines.cascading.doubt import is_doubtful

TOKEN_KINDS = ("document", "key", "value", "scored")
"""Kinds of tokens that an engine forwards for a product."""


@dataclass(frozen=True, slots=True)
class AskedProduct:
    """A product for which the larger model was asked everything. `seconds`: engine seconds for this product alone."""

    seconds: float
    answers: Sequence[AskedAnswer]


@dataclass(frozen=True, slots=True)
class TokenRates:
    """Rates over all products.

    Attributes:
        seconds: engine seconds per forwarded token.
        own_tokens: mean tokens of an attribute: its key, and the tokens forwarded to score it.
    """

    seconds: float
    own_tokens: float

    @classmethod
    def of(cls, products: Sequence[AskedProduct], metrics: Sequence[Mapping[str, Any]]) -> TokenRates:
        """Compute the rates from the larger model's rows of the metrics."""
        tokens = {kind: sum(row.get(f"{kind}_tokens") or 0 for row in metrics) for kind in TOKEN_KINDS}
        seconds, answers = sum(each.seconds for each in products), sum(len(each.answers) for each in products)
        return cls(seconds / max(1, sum(tokens.values())), (tokens["key"] + tokens["scored"]) / max(1, answers))

    def seconds_at(self, product: AskedProduct, below: float) -> float:
        """Estimate the product's engine seconds at that threshold: from 0 to the measured seconds."""
        asked = [each for each in product.answers if is_doubtful(each.certainty, below)]
        if not asked:
            return 0.0
        left_out = (len(product.answers) - len(asked)) * self.own_tokens
        left_out += sum(each.num_tokens for each in product.answers) - sum(each.num_tokens for each in asked)
        # By the mean of all keys a product with short ones could come out below what its answers take.
        answers = sum(each.num_tokens + self.own_tokens for each in asked) * self.seconds
        return max(min(answers, product.seconds), product.seconds - left_out * self.seconds)
