"""An answer of which is known whether it is right: what a calibration is learned from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pipelines.confidence.answer_features import AnswerFeatures


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """A value that the model answered, judged.

    Attributes:
        product: says which product it is of; answers of one are never on both sides of a split.
        definition: of the attribute (`definition_of`).
    """

    product: str
    definition: str
    answer: AnswerFeatures
    is_right: bool

    @property
    def pair(self) -> tuple[str, str]:
        """Its category and attribute."""
        return self.answer.category, self.answer.attribute

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "product": self.product,
            "is_right": self.is_right,
            "definition": self.definition,
            **asdict(self.answer),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LabelledAnswer:
        """The opposite of `to_dict`."""
        rest = {key: value for key, value in data.items() if key not in ("product", "definition", "is_right")}
        kinds = tuple(rest.pop("evidence_kinds"))
        return cls(data["product"], data["definition"], AnswerFeatures(**rest, evidence_kinds=kinds), data["is_right"])
