"""Configuration of the server."""

from __future__ import annotations

from pydantic import Field

from hpd_core import EngineConfig
from hpd_core.system.section import Section


class ServeConfig(Section):
    """Engine of a server, with the keys of a job."""

    model: str = Field(
        min_length=1, description="hub id, folder (local or any fsspec URI), or an embedded model's name"
    )
    adapter: str | None = Field(None, description="LoRA adapter in peft's format: local folder, fsspec URI or hub id")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="how the engine decodes")
