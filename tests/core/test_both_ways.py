"""Documents that are read both ways, from settings to answers; tests/core/test_exactness.py has all schedules."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as tf
from pydantic import ValidationError

from hpd_core import AutoregressiveBaseline, Engine, EngineConfig, ModelError
from hpd_core.decoding.decoder import StepReport
from hpd_core.families.table import refuse_both_ways
from hpd_core.models.adapter_folder import AdapterRecord
from hpd_core.models.loading import load_model, load_tokenizer
from hpd_core.requests.prompt_builder import PromptBuilder
from tests.core.constrained import likeliest_answer, text_choices
from tests.core.engines import answers, config
from tests.core.families import build_model
from tests.core.helpers import (
    NEAR_TIE,
    TreeCase,
    assert_equals_oracle,
    decode,
    random_branches,
    random_endings,
    random_ids,
)
from tests.core.mixers.hybrids import build_hybrid
from tests.core.oracle import decode_chain
from tests.core.products import SCHEMAS, products
from tests.tables import table

READING = {"document_attention": "bidirectional"}


def check_engine(model: str, settings: EngineConfig, num_records: int) -> int:
    """That the engine answers what the oracle writes behind its prompts. Returns how many values were compared."""
    records = products(num_records)
    tokenizer, oracle = load_tokenizer(model, settings), load_model(model, settings)
    prepared, _ = PromptBuilder(tokenizer, settings, None).build(records, SCHEMAS)
    with Engine.from_pretrained(model, settings) as engine:
        results, endings = engine.extract(records, SCHEMAS), engine.endings
    compared = 0
    for item in prepared:
        layout = item.layout
        document = range(layout.num_prefix_tokens, len(layout.trunk))
        attributes = SCHEMAS[results[item.slots[0].trunk].category].attributes
        for branch, (attribute, value) in enumerate(
            zip(attributes, results[item.slots[0].trunk].values.values(), strict=True)
        ):
            seen = (layout.scopes < 0) | (layout.scopes == layout.value_scopes[branch])
            chain = layout.token_ids[seen].tolist()
            if attribute.is_closed:
                answer = likeliest_answer(oracle, chain, attribute, tokenizer, endings, document)
                assert value.raw == tokenizer.decode(answer.tokens).split("\n")[0]
                compared += 1
                continue
            choices = text_choices(attribute, tokenizer)
            expected = decode_chain(oracle, chain, settings.max_value_tokens, endings, None, choices, document)
            if all(expected.margin(index) > NEAR_TIE for index in range(len(expected.tokens))):
                text = tokenizer.decode(expected.tokens, skip_special_tokens=True).split("\n")[0]
                assert (value.raw, value.num_tokens) == (text, len(expected.tokens))
                compared += 1
    return compared


@table("keys", ["full", "short"])
def test_an_engine_answers_what_the_oracle_writes(keys: str, tiny_model_dir: Path) -> None:
    settings = config(prompt={"keys": keys}, max_tokens_per_step=200, **READING)
    assert check_engine(str(tiny_model_dir), settings, 4) > 10


@pytest.mark.usefixtures("poison")
def test_a_document_is_one_step_however_long_it_is_and_shares_none_of_its_text() -> None:
    rng = np.random.default_rng(5)
    endings, prefix, common = random_endings(rng), random_ids(rng, 9, 9), random_ids(rng, 90, 90)
    cases = [
        TreeCase(prefix, [*common, *random_ids(rng, 1, 9)], random_branches(rng, 3, 5), both_ways=True)
        for _ in range(5)
    ]
    reports: list[StepReport] = []
    settings = EngineConfig(max_tokens_per_step=40, max_prompts_per_cohort=3)
    prompts = decode(build_model("llama"), cases, endings, settings, reports=reports)
    assert not any(report.computed_texts for report in reports)
    fed: dict[int, int] = {}
    for report in reports:
        for prompt, count in (pair for cohort in report.cohorts for pair in cohort):
            fed.setdefault(id(prompt), count)
    assert all(fed[id(prompt)] >= len(prompt.document_ids) > 40 for prompt in prompts)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(build_model("llama"), case, prompt, endings)


def record(folder: Path, **fields: Any) -> None:
    known = {"base_model": "tiny", "base_revision": None, "layout": "tree", "prompt_hash": "", "max_value_tokens": 8}
    (folder / "hpd.json").write_text(json.dumps(known | {"format": 1, "stack_size": 6} | fields))


def test_a_model_is_asked_as_it_was_trained(tiny_model_dir: Path, tmp_path: Path) -> None:
    """By its record; older records say nothing, and their models have learned to read as all models do."""
    model = shutil.copytree(tiny_model_dir, tmp_path / "model")
    found: dict[tuple[str, str], Any] = {}
    for trained in ("older", "causal", "bidirectional"):
        record(model, **({} if trained == "older" else {"document_attention": trained}))
        for asked in ("auto", "causal", "bidirectional"):
            with Engine.from_pretrained(str(model), config(document_attention=asked)) as engine:
                described = engine.describe()["document_attention"]
                found[trained, asked] = described, answers(engine.extract(products(4), SCHEMAS))
    for asked, (described, _) in ((pair[1], each) for pair, each in found.items() if pair[1] != "auto"):
        assert described == asked
    assert found["older", "auto"] == found["causal", "auto"] == found["bidirectional", "causal"]
    assert found["bidirectional", "auto"] == found["causal", "bidirectional"] != found["causal", "auto"]
    with Engine.from_pretrained(str(model), config("stacked")) as engine:
        assert engine.describe()["document_attention"] == "causal", "in other layouts all models read so"
    with AutoregressiveBaseline.from_pretrained(str(model), config()) as baseline:
        assert baseline.describe()["document_attention"] == "causal", "and so does who decodes token by token"
        assert not any(result.error for result in baseline.extract(products(2), SCHEMAS))
    assert AdapterRecord.read(model) is not None


def test_what_cannot_be_read_so_is_refused_by_name(tiny_model_dir: Path) -> None:
    with pytest.raises(ValidationError, match="'bidirectional' is for the layout 'tree', not for 'stacked'"):
        config("stacked", **READING)
    with pytest.raises(ModelError, match="'ar' reads documents in the order of their text: set it to 'causal'"):
        AutoregressiveBaseline.from_pretrained(str(tiny_model_dir), config(**READING))
    for model, why in (
        (build_model("mistral"), "mistral has layers that see no further than sliding_window 7 before a token"),
        (build_model("gemma3"), "sliding_window 7"),
        (build_hybrid("qwen3_5"), "qwen3_5_text has layers of type linear_attention"),
    ):
        with pytest.raises(ModelError, match=f"engine.document_attention is 'bidirectional', and .*{why}"):
            refuse_both_ways(model.config)
    for configuration, why in (
        (tf.Llama4TextConfig(attention_chunk_size=8192), "no further than attention_chunk_size 8192"),
        (tf.DeepseekV32Config(), "deepseek_v32 picks the tokens that each token attends to"),
    ):
        with pytest.raises(ModelError, match=why):
            refuse_both_ways(configuration)
    # A window as wide as the model's context hides nothing, and no layer has it where all are full.
    refuse_both_ways(tf.MistralConfig(sliding_window=4096, max_position_embeddings=4096))
    refuse_both_ways(tf.Qwen2Config(use_sliding_window=True, sliding_window=64, max_window_layers=99))
