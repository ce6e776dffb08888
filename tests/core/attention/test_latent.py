"""Attention to latents: in both forms what attention to keys and values made of them is, and in the cheaper one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from hpd_core.attention.kv_cache import LayerShape
from hpd_core.attention.latent import LatentAttention, LatentLayer, LatentSizes
from hpd_core.attention.plan import PrefixCache, PromptGroup
from hpd_core.layers.fp8 import quantize_model
from hpd_core.layout import EVERYBODY, PUBLIC
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from tests.core.attention.attention_problems import Problem, Shape, expected, problem
from tests.core.native import needs_native
from tests.core.sweep.configs import REACHES
from tests.core.sweep.outcome import build
from tests.examples import examples
from tests.tables import table

HEADS = 3
SIZES = LatentSizes(HEADS, latent=8, plain=6, rotated=4, value=6)
OF_DEEPSEEK = LatentSizes(HEADS, latent=512, plain=128, rotated=64, value=128)
FORMS: dict[str, Callable[..., bool]] = {
    "absorbed": lambda *_: True,
    "expanded": lambda *_: False,
    "by rows": lambda _, rows, __: rows % 2 == 0,
    "by columns": lambda _, __, columns: columns % 2 == 0,
    "counted": LatentSizes.is_absorbed,
}


@dataclass
class Latents:
    """A problem whose keys are latents and rotated parts, and the matrix."""

    item: Problem
    weight: Tensor
    sizes: LatentSizes

    def expand(self, latents: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
        """As transformers does it: latents [n, 1, C, r], rotated [n, 1, C, d]."""
        both = (latents[:, 0] @ self.weight.to(latents.dtype).T).view(*latents[:, 0].shape[:2], HEADS, -1)
        plain, values = (
            part.transpose(1, 2) for part in (both[..., : self.sizes.plain], both[..., self.sizes.plain :])
        )
        return torch.cat([plain, rotated.expand(-1, HEADS, -1, -1)], dim=3), values

    def run(self, *, by_kernel: bool = False) -> Tensor:
        """[t, H, v]"""
        item = self.item
        out = torch.full((len(item.q), HEADS, self.sizes.value), torch.nan, dtype=item.q.dtype)
        options = {name: item.settings[name] for name in ("scale", "softcap", "sinks")}
        of = LatentLayer(self.sizes, self.weight, self.expand, **options)
        attention = LatentAttention(item.plan, by_kernel=by_kernel)
        attention.attend(0, item.q, item.k, out, of, item.settings["window"])
        return out

    def expected(self) -> Tensor:
        """In fp64, by keys and values of all columns, as the cache has been left."""
        plan = self.item.plan

        def expanded(kept: Tensor) -> tuple[Tensor, Tensor]:
            return self.expand(kept[..., : self.sizes.latent].double(), kept[..., self.sizes.latent :].double())

        def with_prefix(part: PromptGroup) -> PromptGroup:
            if part.prefix is None:
                return part
            keys, values = expanded(part.prefix.keys[0][None])
            return replace(part, prefix=PrefixCache([keys[0]], [values[0]]))

        keys, values = expanded(plan.keys[0])
        plan = replace(plan, keys=[keys], values=[values], groups=[with_prefix(part) for part in plan.groups])
        new_keys, new_values = expanded(self.item.k.transpose(0, 1)[None])
        k, v = new_keys[0].transpose(0, 1), new_values[0].transpose(0, 1)
        return expected(Problem(plan, self.item.q, k, v, self.item.settings))


def latents(rng: np.random.Generator, shape: Shape, sizes: LatentSizes = SIZES) -> Latents:
    """A random problem; queries have the sizes of keys."""
    shape = replace(shape, num_kv_heads=1, group=HEADS, key_size=sizes.latent + sizes.rotated, value_size=1)
    item = problem(rng, shape, is_native=False)
    item.q = item.q[..., : sizes.plain + sizes.rotated]
    weight = torch.from_numpy(rng.standard_normal((HEADS * (sizes.plain + sizes.value), sizes.latent)))
    return Latents(item, (weight / sizes.latent**0.5).to(shape.dtype), sizes)


SHAPES = st.builds(
    Shape,
    counts=st.lists(st.one_of(st.integers(0, 7), st.integers(8, 40)), min_size=1, max_size=5).filter(any),
    earlier=st.sampled_from([0, 1, 14, 50, 90]),
    prefix_lengths=st.lists(st.sampled_from([1, 15, 33]), max_size=2).map(tuple),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    window=st.sampled_from([None, 1, 9, 60, -5, -32]),
    softcap=st.sampled_from([None, 3.0]),
    sinks=st.sampled_from([None, 0.0, 100.0, -100.0]),
)


@needs_native
@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shape=SHAPES.filter(lambda shape: shape.dtype == torch.float32))
def test_the_kernel_takes_expanded_keys(seed: int, shape: Shape) -> None:
    item = latents(np.random.default_rng(seed), shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LatentSizes, "is_absorbed", FORMS["expanded"])
        found = item.run(by_kernel=True)
    torch.testing.assert_close(found.double(), item.expected(), atol=5e-5, rtol=5e-5)


@settings(max_examples=examples(80), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), shape=SHAPES, form=st.sampled_from(list(FORMS)), tile=st.sampled_from([64, 2**19])
)
def test_equals_attention_to_keys_and_values(seed: int, shape: Shape, form: str, tile: int) -> None:
    """Unused cache is full of large numbers; in fp64 nothing but rounding is left."""
    item = latents(np.random.default_rng(seed), shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LatentSizes, "is_absorbed", FORMS[form])
        patch.setattr("hpd_core.attention.plan.TILE_SCORES", {"cpu": tile})
        found = item.run()
    rounding = 5e-5 if shape.dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found.double(), item.expected(), atol=rounding, rtol=rounding)


def test_in_bfloat16_both_forms_are_as_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured: 0.31% to 0.47% of the answers' size, whichever form."""
    shape = Shape([16, 8], earlier=90, prefix_lengths=(40,), dtype=torch.bfloat16, scale=192**-0.5)
    for form in ("absorbed", "expanded"):
        item = latents(np.random.default_rng(0), shape, OF_DEEPSEEK)
        monkeypatch.setattr(LatentSizes, "is_absorbed", FORMS[form])
        found, wanted = item.run().double(), item.expected()
        assert (found - wanted).norm() < 0.01 * wanted.norm()


@table("form", ["absorbed", "expanded"])
@table(("rows", "columns"), [(1, 40), (7, 40), (40, 41)])
def test_multiplications_are_those_that_are_counted(
    form: str, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = latents(np.random.default_rng(0), Shape(counts=[rows], earlier=0))
    plan = item.item.plan
    room = torch.zeros(1, 1, columns, SIZES.latent + SIZES.rotated)
    by_all = {"k_scopes": PUBLIC, "k_lasts": EVERYBODY, "k_positions": 0}
    seen: dict[str, Any] = {name: torch.full((1, columns), number) for name, number in by_all.items()}
    item.item.plan = replace(plan, keys=[room], **seen)
    monkeypatch.setattr(LatentSizes, "is_absorbed", FORMS[form])
    with FlopCounterMode(display=False) as counter:
        item.run()
    of_weights = SIZES.latent * (SIZES.plain + SIZES.value)
    counts = {
        "absorbed": rows * of_weights + rows * columns * (2 * SIZES.latent + SIZES.rotated),
        "expanded": columns * of_weights + rows * columns * (SIZES.plain + SIZES.rotated + SIZES.value),
    }
    assert counter.get_total_flops() == 2 * HEADS * counts[form]
    monkeypatch.undo()
    assert SIZES.is_absorbed(rows, columns) == (counts["absorbed"] < counts["expanded"])


def test_few_rows_are_absorbed_and_many_are_not() -> None:
    """Of DeepSeek-V2's and -V3's sizes."""
    assert [rows for rows in range(1, 400) if OF_DEEPSEEK.is_absorbed(rows, 800)] == list(range(1, 141))
    assert not any(OF_DEEPSEEK.is_absorbed(rows, rows) for rows in (1, 100, 10_000)), "a document's first tokens"


@table("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_hands_on_latents_of_its_own(copied: Callable[[Any], Any]) -> None:
    model = build("deepseek_v3", REACHES["loose"])
    attach(model)
    other = copied(model)
    module = next(part for part in other.modules() if hasattr(part, "expand_kv"))
    assert module.expand_kv.__self__ is module
    assert cache_shape(other).layer == LayerShape(1, 24, 0, 4, LayerShape(4, 24, 12, 4))


def test_latents_are_kept_only_where_a_weight_is_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("deepseek_v3", REACHES["loose"])
    layers = [part for part in model.modules() if hasattr(part, "kv_b_proj")]
    layers[1].kv_b_proj.register_forward_hook(lambda *_: None)
    shape = cache_shape(model)
    assert [layer.expanded is None for layer in shape.layers] == [False, True, False, False]
    assert shape.numbers_per_token == 3 * 24 + 4 * (24 + 12)


def test_layers_in_8_bits_keep_keys_and_values() -> None:
    """They round latents before they multiply."""
    model = build("minicpm3", REACHES["loose"])
    quantize_model(model)
    assert not cache_shape(model).keeps_latents


def test_what_a_token_has_on_its_way_is_counted_for_both_forms() -> None:
    of = OF_DEEPSEEK
    kept = LayerShape(1, of.latent + of.rotated, 0, HEADS, of.expanded)
    expanded = 2 * HEADS * (of.plain + of.rotated + of.value)  # queries, keys, values and answers
    absorbed = HEADS * (of.latent + of.rotated) + HEADS * of.latent  # queries and answers before U_V
    assert of.expanded.attended_numbers == expanded
    assert expanded + absorbed <= kept.attended_numbers <= 1.1 * (expanded + absorbed)
