"""What the repository ships: the adapter of `make demo`, and the sample catalog that it was never trained on."""

from __future__ import annotations

from pathlib import Path

from hpd_core.models.adapter_folder import as_trained, open_adapter
from hpd_core.models.loading import load_tokenizer
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config

ADAPTER = Path("adapters/smollm2-generalist")


def test_the_demo_uses_it_as_it_was_trained() -> None:
    job = load_config(JobConfig, "configs/demo.yaml")
    assert job.adapter == str(ADAPTER)
    with open_adapter(str(ADAPTER)) as adapter:
        engine = as_trained(job.engine, adapter.record)
        rendered = engine.prompt.rendered_hash(load_tokenizer(job.model, engine))
        used = (engine.layout, engine.prompt.hash, rendered, engine.max_value_tokens, engine.document_attention)
        assert adapter.notes(*used) == []
