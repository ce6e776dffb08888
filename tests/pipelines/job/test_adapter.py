"""Jobs with a LoRA adapter: it is named in every row, and a run keeps to the one it began with."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from transformers import AutoModelForCausalLM

from hpd_core import EngineConfig
from hpd_core.models.adapter_folder import AdapterRecord, open_adapter
from pipelines.job.preflight import plan_job
from pipelines.job.summary import outcome_json, print_outcome
from tests.pipelines.conftest import Workplace, products, read_table


def make_adapter(folder: Path, model: Path, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    base: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    adapted: Any = get_peft_model(base, lora)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3)
    adapted.save_pretrained(folder)
    return folder


def revision(folder: Path) -> str:
    with open_adapter(str(folder)) as adapter:
        return adapter.revision


@pytest.fixture
def catalog(workplace: Workplace) -> Workplace:
    workplace.write_parquet("a.parquet", products(6))
    return workplace


@pytest.fixture
def adapter(workplace: Workplace, tiny_model_dir: Path) -> Path:
    return make_adapter(workplace.folder / "adapter", tiny_model_dir)


@pytest.mark.full
def test_a_job_with_an_adapter_names_it(catalog: Workplace, adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    AdapterRecord(
        base_model="tiny",
        base_revision=None,
        layout="stacked",
        prompt_hash=EngineConfig().prompt.hash,
        max_value_tokens=6,
        stack_size=2,
    ).write(adapter)
    # As the user writes it; actors were started in another folder.
    monkeypatch.chdir(catalog.folder)
    config = catalog.config(adapter="adapter")
    outcome = catalog.run(adapter="adapter")
    assert outcome.totals.products == 6
    output = catalog.folder / "out"
    found = revision(adapter)
    for table in ("attributes", "products"):
        rows = read_table(output, table)
        assert {row["adapter_revision"] for row in rows} == {found}
    manifest = json.loads((output / "manifest.json").read_text())
    assert (manifest["adapter_id"], manifest["adapter_revision"]) == ("adapter", found)
    assert manifest["config"]["adapter"] == "adapter"
    assert manifest["engine"]["adapter_id"] == str(adapter)

    note = "the adapter was trained for layout 'stacked', this run uses 'tree'"
    assert manifest["notes"] == [note]
    again = catalog.run(adapter="adapter")
    assert again.was_finished
    job = plan_job(config)
    for result in (outcome, again):
        text = io.StringIO()
        print_outcome(Console(file=text, width=200), job, result)
        assert f"Note: {note}\n" in text.getvalue()
        assert outcome_json(job, result, 0)["notes"] == [note]

    plain = catalog.run(output=str(catalog.folder / "plain"))
    assert plain.notes == []
    rows = read_table(catalog.folder / "plain", "attributes")
    assert {row["adapter_revision"] for row in rows} == {None}
    assert [row["value_raw"] for row in rows] != [row["value_raw"] for row in read_table(output, "attributes")]
