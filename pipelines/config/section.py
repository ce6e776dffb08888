"""A section of a configuration: unknown keys are refused, and nothing changes it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """What all sections have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")
