"""Models with layers beside attention through the engine: from a folder, whatever is shared, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpd_core import Engine, Record
from hpd_core.errors import ModelError
from hpd_core.families.table import mixers_of
from tests.core.engines import answers, config
from tests.core.products import SCHEMAS, products

from .hybrids import HYBRID_PARAMETERS, build_hybrid


@pytest.fixture(scope="module", params=HYBRID_PARAMETERS)
def folder(request: pytest.FixtureRequest, tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each family."""
    path: Path = tmp_path_factory.mktemp(request.param)
    build_hybrid(request.param, vocab_size=len(tiny_tokenizer)).save_pretrained(path)
    tiny_tokenizer.save_pretrained(path)
    return path


def variants(count: int) -> list[Record]:
    """Whose texts begin alike."""
    return [Record(str(n), "Shoes", {"title": f"Velor running shoe, light and soft, size {n}"}) for n in range(count)]


def test_a_record_is_answered_alike_alone_and_among_others(folder: Path) -> None:
    records = [*products(9), *variants(6)]
    with Engine.from_pretrained(str(folder), config()) as engine:
        together = answers(engine.extract(records, SCHEMAS))
        alone = [answers(engine.extract([record], SCHEMAS))[0] for record in records[::4]]
    assert alone == together[::4]
    with Engine.from_pretrained(str(folder), config(share_text=False)) as engine:
        assert answers(engine.extract(records, SCHEMAS)) == together


def test_what_cannot_be_is_refused(folder: Path, tiny_tokenizer: Any) -> None:
    with pytest.raises(ModelError, match=r"set engine\.layout to 'tree'"):
        Engine.from_pretrained(str(folder), config("stacked"))
    model = build_hybrid("lfm2", vocab_size=len(tiny_tokenizer))
    with pytest.raises(ModelError, match=r"set engine\.layout to 'tree'"):
        Engine(model, tiny_tokenizer, config("stacked"))


def test_outside_of_the_engine_the_model_is_transformers_own() -> None:
    model, other = build_hybrid("lfm2"), build_hybrid("lfm2")
    mixers_of(model)
    ids = torch.arange(3, 20)[None]
    assert torch.equal(model(input_ids=ids).logits, other(input_ids=ids).logits)
    cached = model.generate(ids, max_new_tokens=4, do_sample=False)
    assert torch.equal(cached, other.generate(ids, max_new_tokens=4, do_sample=False))


def test_a_module_that_goes_another_way_is_found_out(tiny_tokenizer: Any) -> None:
    model = build_hybrid("lfm2", vocab_size=len(tiny_tokenizer))
    for layer in model.model.layers:
        if hasattr(layer, "conv"):
            layer.conv.forward = lambda hidden_states, **_: hidden_states
    with pytest.raises(ModelError, match="has not called causal_conv1d_fn"):
        Engine(model, tiny_tokenizer, config())
