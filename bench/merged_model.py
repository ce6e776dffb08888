"""A model with an adapter in its weights, for rivals that take no adapters or take them otherwise.

All read documents causally with it, also where the adapter was taught to read them both ways: rivals can read no other
way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from peft import PeftModel

from hpd_core import EngineConfig
from hpd_core.models import loading


@contextmanager
def merged(model: str, adapter: str | None) -> Iterator[str]:
    """A model that everybody can load: `model`, or a folder for it with the adapter in its weights."""
    if adapter is None:
        yield model
        return
    config = EngineConfig()
    with tempfile.TemporaryDirectory(prefix="hpd-merged-") as folder:
        whole = PeftModel.from_pretrained(loading.load_model(model, config), adapter).merge_and_unload()
        whole.save_pretrained(folder)
        loading.load_tokenizer(model, config).save_pretrained(folder)
        yield folder
