"""Loaded model, the adapter in it, and what identifies both."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpd_core.config import EngineConfig
from hpd_core.models import description, loading
from hpd_core.models.adapter_folder import Adapter, open_adapter
from hpd_core.models.adapter_record import AdapterRecord, as_trained
from hpd_core.models.adapters import add_adapter


@dataclass(eq=False)
class Weights:
    """Loaded model and what identifies it.

    Attributes:
        source: the folder or hub id it came from.
        adapter: the adapter that was put into it; its files may be gone.
        whole_size: `description.size` of the whole model, if this process has a part.
    """

    model: Any
    model_id: str
    source: str
    adapter: Adapter | None = None
    whole_size: dict[str, int] | None = None

    @classmethod
    def of(cls, model: Any) -> Weights:
        """Return the names of a model that the caller has loaded."""
        name = str(getattr(model.config, "_name_or_path", "") or "")
        return cls(model, name, name)

    @classmethod
    def load(cls, model: str, config: EngineConfig, adapter: str | None) -> Weights:
        """Load `model` and put `adapter` into it. Raise ModelError."""
        with ExitStack() as stack:
            # Before the weights: what is wrong with an adapter's files is said within seconds.
            opened = None if adapter is None else stack.enter_context(open_adapter(adapter))
            weights = cls(loading.load_weights(model, config), model, loading.resolve_source(model), opened)
            if opened is not None:
                add_adapter(weights.model, opened, weights.revision)
            loading.finish(weights.model, config)
        return weights

    def settings(self, config: EngineConfig, decoding: str = "hpd") -> EngineConfig:
        """Return the settings for these weights: 'auto' becomes what they were trained with (`as_trained`).

        Args:
            decoding: kind of decoding; 'ar' reads documents causally, however they were read in training.

        Raises:
            ModelError: the record in the model's folder cannot be read.
        """
        record = self.adapter.record if self.adapter is not None else AdapterRecord.read(Path(self.source))
        return as_trained(config, record, "ar" if decoding == "ar" else None)

    @cached_property
    def revision(self) -> str | None:
        """Exact revision of the model, without the adapter."""
        return description.model_revision(self.model, self.source)
