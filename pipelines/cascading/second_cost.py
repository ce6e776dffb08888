"""What the larger model costs at a threshold, from a run in which it was asked for everything.

An engine's time is split by the tokens that it forwards. Of a product of which anything is asked its text is forwarded
once, and of each attribute the key, what is scored, and the answer: what is not asked is taken off by its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.cascading.both_answers import AskedAnswer
from pipelines.cascading.doubt import is_doubtful

TOKEN_KINDS = ("document", "key", "value", "scored")
"""Of the tokens that an engine forwards for a product."""


@dataclass(frozen=True, slots=True)
class AskedProduct:
    """A product of which the larger model was asked for everything. `seconds`: of its engine, for this one alone."""

    seconds: float
    answers: Sequence[AskedAnswer]


@dataclass(frozen=True, slots=True)
class TokenRates:
    """Of all products together.

    Attributes:
        seconds: for a token forwarded.
        own_tokens: of an attribute, on average: its key, and what is forwarded to score it.
    """

    seconds: float
    own_tokens: float

    @classmethod
    def of(cls, products: Sequence[AskedProduct], metrics: Sequence[Mapping[str, Any]]) -> TokenRates:
        """From the larger model's rows of the metrics."""
        tokens = {kind: sum(row.get(f"{kind}_tokens") or 0 for row in metrics) for kind in TOKEN_KINDS}
        seconds, answers = sum(each.seconds for each in products), sum(len(each.answers) for each in products)
        return cls(seconds / max(1, sum(tokens.values())), (tokens["key"] + tokens["scored"]) / max(1, answers))

    def seconds_at(self, product: AskedProduct, below: float) -> float:
        """What the product would take at that threshold: from 0 to what it took."""
        asked = [each for each in product.answers if is_doubtful(each.certainty, below)]
        if not asked:
            return 0.0
        left_out = (len(product.answers) - len(asked)) * self.own_tokens
        left_out += sum(each.num_tokens for each in product.answers) - sum(each.num_tokens for each in asked)
        # By the mean of all keys a product with short ones could come out below what its answers take.
        answers = sum(each.num_tokens + self.own_tokens for each in asked) * self.seconds
        return max(min(answers, product.seconds), product.seconds - left_out * self.seconds)
