"""An answer with a known verdict: the training data of a calibration."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pipelines.confidence.answer_features import AnswerFeatures


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """A model's value, judged.

    Attributes:
        product: identity of its product; answers of one product are never on both sides of a split.
        definition: hash of the attribute (`definition_of`).
    """

    product: str
    definition: str
    answer: AnswerFeatures
    is_right: bool

    @property
    def pair(self) -> tuple[str, str]:
        """Category and attribute."""
        return self.answer.category, self.answer.attribute

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "product": self.product,
            "is_right": self.is_right,
            "definition": self.definition,
            **asdict(self.answer),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LabelledAnswer:
        """Invert `to_dict`."""
        rest = {key: value for key, value in data.items() if key not in ("product", "definition", "is_right")}
        kinds = tuple(rest.pop("evidence_kinds"))
        return cls(data["product"], data["definition"], AnswerFeatures(**rest, evidence_kinds=kinds), data["is_right"])
