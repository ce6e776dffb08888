"""Fine-tuning models with layers beside attention: loss and gradients are those of each value's chain alone.

The model itself computes these layers in fp32, whatever its weights are in. Here both it and training are made to
compute in fp64 throughout, so that nothing hides behind rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from hpd_core.errors import ModelError
from hpd_core.layout import Branch, fill_layout, tree_layout
from hpd_core.mixers.running import running_anew
from hpd_core.training.examples import IGNORED, Example
from hpd_core.training.loss import TrainingBatch, attach_training, collate, forward_logits, forward_loss
from tests.core.helpers import random_case, random_ids
from tests.core.mixers.hybrids import HYBRID_PARAMETERS, HYBRIDS, MOST_USED, build_hybrid
from tests.examples import examples
from tests.tables import table


def _refusal(family: str) -> str | None:
    try:
        attach_training(build_hybrid(family))
    except ModelError as error:
        return str(error)
    return None


REFUSALS = {family: reason for family in HYBRIDS if (reason := _refusal(family)) is not None}
PARAMETERS = [each for each in HYBRID_PARAMETERS if not REFUSALS.keys() & {*each.values}]


class Wide(TorchFunctionMode):
    """Whoever asks for fp32 gets fp64."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        given = {name: _widened(each) for name, each in (kwargs or {}).items()}
        return function(*map(_widened, args), **given)


def _widened(argument: Any) -> Any:
    return torch.float64 if argument is torch.float32 else argument


@pytest.fixture
def wide() -> Iterator[None]:
    with Wide():
        yield


Chain = tuple[Sequence[int], Sequence[int]]
"""All tokens before a value, and the value."""


def draw(rng: np.random.Generator, num_prefix: int, branches: Sequence[int], longest: int = 80) -> Any:
    """Examples that share a prefix, with so many branches each, and the chains that they are made of."""
    prefix = random_ids(rng, num_prefix, num_prefix)
    drawn: list[Example] = []
    chains: list[Chain] = []
    for count in branches:
        document = random_ids(rng, 0 if num_prefix else 1, longest)
        keys, values = ([random_ids(rng, 1, most) for _ in range(count)] for most in (4, 6))
        layout = tree_layout(prefix, document, [Branch(key, 6) for key in keys])
        drawn.append(Example(fill_layout(layout, values), num_prefix, 1))
        chains += [([*prefix, *document, *key], value) for key, value in zip(keys, values, strict=True)]
    return drawn, chains


def loss_of(model: Any, batch: TrainingBatch) -> torch.Tensor:
    """As `forward_loss`, which sums up in fp32."""
    logits = forward_logits(model, batch)
    return F.cross_entropy(logits, batch.targets, reduction="sum", ignore_index=IGNORED)


def plain_loss(model: Any, chains: Sequence[Chain]) -> torch.Tensor:
    """Each chain alone through the model as transformers has it."""
    losses = []
    for before, value in chains:
        logits = model(input_ids=torch.tensor([[*before, *value]]), use_cache=False).logits[0, len(before) - 1 : -1]
        losses.append(F.cross_entropy(logits, torch.tensor(value), reduction="sum"))
    return torch.stack(losses).sum()


def gradients(model: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        scale = max(gradient.abs().max().item(), 1e-3)
        assert (found[name] - gradient).abs().max().item() < tolerance * scale, name


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("family", PARAMETERS)
def test_loss_and_gradients_are_those_of_each_chain_alone(family: str) -> None:
    """Documents longer than a chunk of 64 and shorter than a convolution's kernel, in one packed row."""
    drawn, chains = draw(np.random.default_rng(0), 5, (3, 1, 4))
    model, plain = build_hybrid(family).double(), build_hybrid(family).double()
    attach_training(model)
    found, expected = loss_of(model, collate(drawn, multiple=16)), plain_loss(plain, chains)
    # MiniMax keeps decays that it has rounded to fp32.
    tolerance = 1e-5 if family == "minimax" else 1e-9
    assert found.item() == pytest.approx(expected.item(), rel=0.1 * tolerance)
    assert_same(gradients(model, found), gradients(plain, expected), tolerance)


@pytest.mark.usefixtures("wide")
@settings(max_examples=examples(8), deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["lfm2", "qwen3_5", "granitemoehybrid_dense", "mamba"]),
    st.sampled_from([0, 1, 2, 70]),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from([1, 32]),
)
def test_any_packing_has_the_gradients_of_the_chains(
    seed: int, family: str, num_prefix: int, branches: list[int], multiple: int
) -> None:
    drawn, chains = draw(np.random.default_rng(seed), num_prefix, branches, longest=9)
    model, plain = build_hybrid(family).double(), build_hybrid(family).double()
    attach_training(model)
    found, expected = loss_of(model, collate(drawn, multiple=multiple)), plain_loss(plain, chains)
    assert_same(gradients(model, found), gradients(plain, expected), 1e-9)


@pytest.mark.parametrize("family", PARAMETERS)
def test_a_layer_that_is_run_anew_in_backward_finds_its_batch(family: str) -> None:
    """Two batches, whose backwards come after both forwards."""
    rng = np.random.default_rng(3)
    batches = [collate(draw(rng, 5, (2, 3), longest=20)[0]) for _ in range(2)]

    def run(*, checkpointing: bool) -> dict[str, torch.Tensor]:
        model = build_hybrid(family)
        if checkpointing:
            anew = {"use_reentrant": False, "context_fn": running_anew}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=anew)
        attach_training(model)
        model.train()
        return gradients(model, torch.stack([forward_loss(model, batch)[0] for batch in batches]).sum())

    assert_same(run(checkpointing=True), run(checkpointing=False), 1e-5)


@table(("family", "fused"), [("granitemoehybrid", "mamba2_split_conv1d_scan_combined"), ("mamba", "mamba_inner_fn")])
def test_kernels_that_know_one_text_alone_are_not_called(
    family: str, fused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are installed, modules in training call them in place of all their functions."""
    model = build_hybrid(family)
    (file,) = {sys.modules[type(part).__module__] for part in model.modules() if hasattr(part, "A_log")}
    attach_training(model)
    model.train()
    monkeypatch.setattr(file, fused, lambda *_, **__: pytest.fail("called"))
    forward_loss(model, collate(draw(np.random.default_rng(3), 5, (2, 3), longest=20)[0]))


def test_what_is_not_trained_is_refused_with_the_reason() -> None:
    """All but those that pick tokens."""
    assert len(PARAMETERS) >= 22
    assert not REFUSALS.keys() & {*MOST_USED}
    for reason in REFUSALS.values():
        assert "picks 1024 tokens for each token" in reason


@table("family", ["lfm2", "qwen3_5"])
def test_stacked_texts_are_refused(family: str) -> None:
    layout = random_case(np.random.default_rng(2), "stacked", [[5, 6]], branches=3, k_max=4).prompt().layout
    example = Example(fill_layout(layout, [[7]] * layout.num_branches), 2, 1)
    model = build_hybrid(family)
    attach_training(model)
    with pytest.raises(ModelError, match="trained in the layouts 'tree' and 'ar' alone"):
        forward_loss(model, collate([example]))
