"""The training forward: what it computes is what decoding computes, and packing changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import EngineConfig
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, fill_layout, tree_layout
from hpd_core.text.endings import Endings, Read
from hpd_core.training.examples import IGNORED, Example
from hpd_core.training.loss import TrainingBatch, attach_training, collate, cross_entropy, forward_logits, forward_loss
from tests.core.families import BOTH_WAYS, FAMILIES_AND_LAYOUTS, VOCABULARY, build_model
from tests.core.helpers import (
    LOGPROB_TOLERANCE,
    decode,
    random_case,
    random_endings,
    random_ids,
    without_constraints,
)
from tests.examples import examples


def to_example(prompt: Prompt) -> Example:
    """The prompt with the values that were decoded from it."""
    return Example(fill_layout(prompt.layout, prompt.tokens), prompt.layout.num_prefix_tokens, 1)


def expected_logprobs(prompt: Prompt) -> np.ndarray[Any, Any]:
    """Decoding's log-probabilities in the order of a filled layout's labels: first tokens first, then the rest.

    Labels stand at the tokens that predict them: the ends of the keys come before all values' tokens in memory.
    """
    firsts = [logprobs[0] for _, logprobs in sorted(zip(prompt.layout.ends, prompt.logprobs, strict=True))]
    return np.array([*firsts, *(value for logprobs in prompt.logprobs for value in logprobs[1:])])


def target_logprobs(model: Any, batch: TrainingBatch) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        logprobs = forward_logits(model, batch).log_softmax(-1)
    taught = batch.targets != IGNORED
    found: np.ndarray[Any, Any] = logprobs[taught].gather(1, batch.targets[taught, None])[:, 0].numpy()
    return found


@pytest.mark.parametrize("multiple", [1, 64])
@pytest.mark.parametrize(("family", "kind"), FAMILIES_AND_LAYOUTS)
def test_teacher_forcing_gives_the_logits_of_decoding(family: str, kind: str, multiple: int) -> None:
    """Several examples in one packed row, the prefix computed once, against the engine's own decoding."""
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    prefix = random_ids(rng, 4, 8)
    cases = [random_case(rng, kind, [prefix], branches=4, k_max=6) for _ in range(5)]
    prompts = decode(build_model(family), cases, endings, EngineConfig())
    model = build_model(family)
    attach_training(model)
    batch = collate([to_example(prompt) for prompt in prompts], multiple=multiple)
    assert batch.num_tokens % multiple == 0
    # Labels are gathered in the packed row's order: example by example.
    expected = np.concatenate([expected_logprobs(prompt) for prompt in prompts])
    np.testing.assert_allclose(target_logprobs(model, batch), expected, atol=LOGPROB_TOLERANCE)
    assert max(len(tokens) for prompt in prompts for tokens in prompt.tokens) > 2, "no value long enough to tell"


@pytest.mark.parametrize(("family", "kind"), FAMILIES_AND_LAYOUTS)
def test_every_logit_is_the_oracles_for_values_nobody_decoded(family: str, kind: str) -> None:
    """Gold values are not what the model would say: the whole rows of logits, against the oracle that is fed them."""
    rng = np.random.default_rng(11)
    prefix = random_ids(rng, 4, 8)
    cases = [without_constraints(random_case(rng, kind, [prefix], branches=4, k_max=6)) for _ in range(3)]
    layouts = [case.prompt().layout for case in cases]
    values = [[random_ids(rng, 1, int(limit)) for limit in layout.max_new_tokens] for layout in layouts]
    nothing_ends = Endings(np.zeros(VOCABULARY, bool), np.full((len(Read), VOCABULARY), Read.STRING, np.uint8))
    oracle = build_model(family)
    expected = []
    for case, layout, tokens in zip(cases, layouts, values, strict=True):
        rows = [value.logits for value in case.forced(oracle, nothing_ends, tokens)]
        # In the order of a filled layout's labels, as `expected_logprobs`.
        firsts = [rows[number][0] for number in np.argsort(layout.ends)]
        expected += [*firsts, *(row for logits in rows for row in logits[1:])]
    model = build_model(family)
    attach_training(model)
    examples = [Example(fill_layout(*pair), len(prefix), 1) for pair in zip(layouts, values, strict=True)]
    batch = collate(examples)
    with torch.no_grad():
        found = forward_logits(model, batch)
    np.testing.assert_allclose(found.numpy(), torch.stack(expected).numpy(), atol=LOGPROB_TOLERANCE)


@settings(max_examples=examples(15))
@given(
    st.integers(0, 10_000), st.sampled_from(["tree", "stacked", BOTH_WAYS]), st.integers(0, 5), st.sampled_from([1, 32])
)
def test_packing_changes_no_gradient(seed: int, kind: str, num_prefix: int, multiple: int) -> None:
    rng = np.random.default_rng(seed)
    prefix = random_ids(rng, num_prefix, num_prefix)
    examples = []
    for _ in range(4):
        layout = random_case(rng, kind, [prefix], branches=3, k_max=4, document=9).prompt().layout
        values = [random_ids(rng, 1, int(limit)) for limit in layout.max_new_tokens]
        targets = [value if rng.random() < 0.8 else [IGNORED] * len(value) for value in values]
        examples.append(Example(fill_layout(layout, values, targets), num_prefix, 1))
    model = build_model("llama")
    attach_training(model)

    def gradients(batches: list[TrainingBatch]) -> tuple[float, dict[str, torch.Tensor]]:
        model.zero_grad()
        losses = [forward_loss(model, batch)[0] for batch in batches]
        torch.stack(losses).sum().backward()
        return sum(loss.item() for loss in losses), {
            name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
        }

    loss, packed = gradients([collate(examples, multiple=multiple)])
    expected_loss, alone = gradients([collate([example]) for example in examples])
    assert loss == pytest.approx(expected_loss, rel=1e-4)
    assert packed.keys() == alone.keys()
    for name in alone:
        scale = alone[name].abs().max().item()
        torch.testing.assert_close(packed[name], alone[name], atol=1e-4 * max(scale, 1e-3), rtol=1e-3)


def test_what_is_not_taught_has_no_loss() -> None:
    layout = tree_layout([5], [6, 7], [Branch([8], 3), Branch([9], 3)])
    model = build_model("llama")
    attach_training(model)
    taught = Example(fill_layout(layout, [[10, 11], [12, 13]], [[10, 11], [IGNORED] * 2]), 1, 1)
    both = Example(fill_layout(layout, [[10, 11], [12, 13]]), 1, 1)
    one = tree_layout([5], [6, 7], [Branch([8], 3)])
    alone = Example(fill_layout(one, [[10, 11]]), 1, 1)
    losses = [forward_loss(model, collate([example]))[0].item() for example in (taught, alone, both)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[2] > losses[0]
    assert (taught.num_targets, both.num_targets) == (2, 4)


@given(st.integers(1, 70), st.sampled_from([0.0, 0.1]), st.integers(0, 1000))
def test_cross_entropy_is_torchs(rows: int, smoothing: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 50, generator=generator) * 5
    targets = torch.randint(0, 50, (rows,), generator=generator)
    targets[torch.rand(rows, generator=generator) < 0.2] = IGNORED
    first, second = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    ours, _ = cross_entropy(first, targets, smoothing)
    theirs = F.cross_entropy(second, targets, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    (ours * 0.3).backward()
    (theirs * 0.3).backward()
    torch.testing.assert_close(first.grad, second.grad, rtol=1e-4, atol=1e-5)


def test_correct_predictions_are_counted() -> None:
    layout = tree_layout([5], [6, 7], [Branch([8], 3)])
    model = build_model("llama")
    attach_training(model)
    probe = collate([Example(fill_layout(layout, [[10]]), 1, 1)])
    best = int(forward_logits(model, probe).argmax())
    other = (best + 1) % VOCABULARY
    for value, expected in (([best], 1), ([other], 0)):
        batch = collate([Example(fill_layout(layout, [value]), 1, 1)], multiple=16)
        assert int(forward_loss(model, batch)[1]) == expected


def test_examples_of_different_prefixes_are_refused() -> None:
    first = Example(fill_layout(tree_layout([1, 2], [3], [Branch([4], 2)]), [[5]]), 2, 1)
    second = Example(fill_layout(tree_layout([1, 9], [3], [Branch([4], 2)]), [[5]]), 2, 1)
    with pytest.raises(ValueError, match="prefix"):
        collate([first, second])
    with pytest.raises(ValueError, match="no examples"):
        collate([])
