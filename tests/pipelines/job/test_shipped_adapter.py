"""What the repository ships: the adapter of `make demo`, and the sample catalog that it was never trained on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from hpd_core import Attribute, CategorySchema, Engine, EngineConfig, Record
from hpd_core.models.adapter_folder import open_adapter
from hpd_core.models.adapter_record import as_trained
from hpd_core.models.loading import load_tokenizer
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from tests.tables import table

ADAPTER = Path("adapters/smollm2-generalist")
SAMPLE = Path("sample")


def recorded_hashes() -> dict[str, str]:
    lines = (SAMPLE / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


@table("name", ["gold.jsonl", "schemas.yaml", "products.parquet"])
def test_the_sample_is_what_it_was_before_the_first_training(name: str) -> None:
    """If this fails because the sample was changed, the scores in the model card no longer hold."""
    assert hashlib.sha256((SAMPLE / name).read_bytes()).hexdigest() == recorded_hashes()[name]


def test_the_model_card_names_the_sample_by_its_hash() -> None:
    card = (ADAPTER / "README.md").read_text()
    for name, digest in recorded_hashes().items():
        assert digest[:16] in card, name


def test_the_adapter_is_small_and_of_no_machine() -> None:
    size = sum(path.stat().st_size for path in ADAPTER.iterdir())
    assert size <= 12_000_000
    settings = json.loads((ADAPTER / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "smollm2"


def test_the_demo_uses_it_as_it_was_trained() -> None:
    job = load_config(JobConfig, "configs/demo.yaml")
    assert job.adapter == str(ADAPTER)
    with open_adapter(str(ADAPTER)) as adapter:
        engine = as_trained(job.engine, adapter.record)
        rendered = engine.prompt.rendered_hash(load_tokenizer(job.model, engine))
        used = (engine.layout, engine.prompt.hash, rendered, engine.max_value_tokens, engine.document_attention)
        assert adapter.notes(*used) == []


def test_it_extracts_every_type() -> None:
    schema = CategorySchema(
        category="Headlamps",
        attributes=(
            *(Attribute(name=name) for name in ("Brand", "Color", "Pack size", "Gender")),
            Attribute(name="Weight", type="number", unit="g"),
            Attribute(name="Rechargeable", type="boolean"),
            Attribute(name="Season", type="enum", values=("summer", "winter", "all year")),
            Attribute(name="Foldable", type="boolean"),
            Attribute(name="Sensors", multiple=True),
        ),
    )
    title = "Petzl Tikka Headlamp, Black, Pack of 2"
    bullets = (
        "rechargeable by USB; weighs 82 g; shines for 100 hours; built for winter nights; light sensor and thermometer"
    )
    record = Record("1", "Headlamps", {"title": title, "bullets": bullets})
    with Engine.from_pretrained("smollm2", EngineConfig(), adapter=str(ADAPTER)) as engine:
        (result,) = engine.extract([record], {"Headlamps": schema})
    assert {name: value.items for name, value in result.values.items()} == {
        "Brand": ("Petzl",),
        "Color": ("Black",),
        "Pack size": ("Pack of 2",),
        "Gender": (),
        "Weight": ("82",),
        "Rechargeable": ("true",),
        "Season": ("winter",),
        "Foldable": (),
        "Sensors": ("light sensor", "thermometer"),
    }
    assert result.values["Gender"].status == result.values["Foldable"].status == "absent"
