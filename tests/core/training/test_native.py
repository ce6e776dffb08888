"""Training by the functions in C++: values and gradients are those of plain formulas, and of the model's own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch import Tensor

from hpd_core.layout import Branch, fill_layout, tree_layout
from hpd_core.mixers.running import running_anew
from hpd_core.native import library, linear
from hpd_core.training import loss, native_attention, native_layers
from hpd_core.training.examples import IGNORED, Example
from hpd_core.training.loss import TrainingBatch, attach_training, collate, forward_loss
from tests.core.families import VOCABULARY, random_model
from tests.core.helpers import random_ids
from tests.core.native import needs_native, threads
from tests.examples import examples
from tests.tables import table

pytestmark = needs_native
needs_tiles = pytest.mark.skipif(not linear.has_tiles(), reason="no AMX here")

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
SIZES = st.one_of(st.integers(1, 50), st.sampled_from([64, 576, 577]))
ROWS = st.sampled_from([1, 2, 7, 60])
THREADS = st.sampled_from([1, 2, 3])


def numbers(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape) * scale).to(dtype).requires_grad_()


def assert_same(
    ours: Callable[..., Any],
    plain: Callable[..., Any],
    inputs: Sequence[Tensor],
    bits: int | None = None,
    noise: float = 0.0,
) -> None:
    """Outputs and gradients of `ours` are those of `plain` in fp64, up to the rounding of the inputs' dtype, or to so
    many bits, and `noise`."""
    exact = [x.detach().double().requires_grad_() for x in inputs]
    found, expected = ours(*inputs), plain(*exact)
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    incoming = [torch.randn(x.shape).to(x.dtype) for x in found]
    torch.autograd.backward(found, incoming)
    torch.autograd.backward(expected, [x.double() for x in incoming])
    unit = 2.0 ** -(bits or (20 if inputs[0].dtype == torch.float32 else 7))
    gradients_of = ((x.grad, y.grad) for x, y in zip(inputs, exact, strict=True))
    for one, other in [*zip(found, expected, strict=True), *gradients_of]:
        assert one is not None
        assert other is not None
        bound = unit * (other.abs() + 0.5 * other.abs().max().clamp(min=1e-6)) + noise
        assert ((one.double() - other).abs() <= bound).all()


@settings(max_examples=examples(40))
@given(SEEDS, DTYPES, ROWS, SIZES, st.sampled_from([0.0, 0.1]), THREADS)
def test_cross_entropy(seed: int, dtype: torch.dtype, rows: int, size: int, smoothing: float, num_threads: int) -> None:
    torch.manual_seed(seed)
    logits = numbers(rows, size, dtype=dtype, scale=4)
    targets = torch.randint(0, size, (rows,)).masked_fill(torch.rand(rows) < 0.3, IGNORED)
    logits.detach()[0, targets[0].clamp(min=0)] = 20  # one that is right

    def plain(x: Tensor) -> Tensor:
        return F.cross_entropy(x, targets, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED)

    with threads(num_threads):
        assert_same(lambda x: loss.cross_entropy(x, targets, smoothing)[0], plain, [logits], noise=1e-5)
        assert loss.cross_entropy(logits, targets)[1] == (logits.float().argmax(-1) == targets).sum()


def plain_attention(q: Tensor, k: Tensor, v: Tensor, problems: native_attention.Problems, scale: float) -> Tensor:
    """Softmax attention stretch by stretch, whole matrices of scores."""
    group = q.shape[1] // k.shape[1]
    outputs, start = [], 0
    for count, shared, seen in zip(problems.counts, problems.shared, problems.seen, strict=True):
        own = slice(start, start + count)
        keys, values = (torch.cat([x[:shared], x[own]]).repeat_interleave(group, 1) for x in (k, v))
        scores = torch.einsum("thd,chd->htc", q[own], keys) * scale
        weights = scores.masked_fill(~seen[:count, : shared + count], -torch.inf).softmax(-1)
        outputs.append(torch.einsum("htc,chd->thd", weights, values))
        start += count
    return torch.cat([*outputs, q.new_zeros(len(q) - start, q.shape[1], v.shape[2])])


@needs_tiles
@settings(max_examples=examples(40))
@given(
    SEEDS,
    st.integers(0, 70),
    st.lists(st.integers(1, 90), min_size=1, max_size=5),
    st.sampled_from([(1, 1), (4, 2), (9, 3)]),
    st.sampled_from([(32, 32), (64, 32), (32, 96)]),
    st.sampled_from([0.02, 0.5, 1.0]),
    st.integers(0, 9),
    THREADS,
)
def test_attention(
    seed: int,
    prefix: int,
    lengths: list[int],
    heads: tuple[int, int],
    sizes: tuple[int, int],
    share: float,
    num_padding: int,
    num_threads: int,
) -> None:
    torch.manual_seed(seed)
    counts = [prefix, *lengths] if prefix else lengths
    shared = [0, *(prefix for _ in lengths)] if prefix else [0 for _ in lengths]
    seen = []
    for count, others in zip(counts, shared, strict=True):
        whom = torch.zeros(count + 2, -(-(others + count) // 32) * 32, dtype=torch.bool)
        whom[:count, : others + count] = torch.rand(count, others + count) < share
        whom[:count, others : others + count] |= torch.eye(count, dtype=torch.bool)  # everybody sees somebody
        seen.append(whom)
    problems = native_attention.Problems(counts, shared, seen)
    total = sum(counts) + num_padding
    q = numbers(total, heads[0], sizes[0], dtype=torch.bfloat16)
    k = numbers(total, heads[1], sizes[0], dtype=torch.bfloat16)
    v = numbers(total, heads[1], sizes[1], dtype=torch.bfloat16)
    scale = sizes[0] ** -0.5
    with threads(num_threads):
        assert_same(
            lambda q, k, v: native_attention.attend(q, k, v, problems, scale),
            lambda q, k, v: plain_attention(q, k, v, problems, scale),
            [q, k, v],
            bits=6,  # weights and the gradients of scores are rounded on the way
        )


def small_llama(dtype: torch.dtype, kind: type[Any] = tf.LlamaConfig, **others: Any) -> Any:
    """With heads of a size that tiles take."""
    config = kind(
        vocab_size=VOCABULARY,
        hidden_size=96,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        pad_token_id=0,
        **others,
    )
    return random_model(config).to(dtype).train()


def some_examples() -> list[Example]:
    rng = np.random.default_rng(0)
    prefix = random_ids(rng, 7, 7)
    filled = []
    for _ in range(4):
        layout = tree_layout(prefix, random_ids(rng, 5, 30), [Branch(random_ids(rng, 1, 4), 6) for _ in range(3)])
        filled.append(Example(fill_layout(layout, [random_ids(rng, 1, 6) for _ in range(3)]), 7, 1))
    return filled


def some_batch() -> TrainingBatch:
    return collate(some_examples(), multiple=32)


@contextmanager
def torch_alone() -> Iterator[None]:
    """While it is entered, nothing is computed by the library."""
    with (
        patch.object(native_attention, "takes", lambda *_: False),
        patch.object(native_layers, "takes", lambda *_: False),
        patch.object(library, "is_here", lambda: False),
    ):
        yield


@contextmanager
def layers_by_ours() -> Iterator[list[int]]:
    """The tokens of each layer that is computed by the library while the block runs."""
    calls: list[int] = []
    run = native_layers._layer

    def counting(layer: Any, x: Tensor, **kwargs: Any) -> Tensor:
        calls.append(len(x))
        return run(layer, x, **kwargs)

    with patch.object(native_layers, "_layer", counting):
        yield calls


def gradients(model: Any, batch: TrainingBatch) -> tuple[float, Tensor]:
    """The loss, and the gradients of all that is trained, one behind the other."""
    model.zero_grad()
    loss, _ = forward_loss(model, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss), torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])


def distance(x: Tensor, y: Tensor) -> float:
    return float((x - y).norm() / y.norm())


@table(
    ("kind", "others"),
    [
        *((kind, {}) for kind in (tf.LlamaConfig, tf.MistralConfig, tf.Qwen2Config, tf.Qwen3Config)),
        (tf.GraniteConfig, {"residual_multiplier": 0.4, "embedding_multiplier": 3.0, "logits_scaling": 2.0}),
        (tf.SmolLM3Config, {"no_rope_layer_interval": 2}),
    ],
)
def test_a_model_learns_what_it_would_learn_by_its_own_code(kind: type[Any], others: dict[str, Any]) -> None:
    model = small_llama(torch.float32, kind, **others)
    attach_training(model)
    with layers_by_ours() as calls:
        loss, found = gradients(model, some_batch())
    assert len(calls) == 2
    with torch_alone():
        expected_loss, expected = gradients(model, some_batch())
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert distance(found, expected) < 1e-5


@table("lora", [False, True])
@table("checkpointing", [False, True])
def test_in_bfloat16_no_less_precisely(lora: bool, checkpointing: bool) -> None:
    def made(dtype: torch.dtype) -> Any:
        model = small_llama(torch.bfloat16).to(dtype)
        if lora:
            torch.manual_seed(0)
            model = get_peft_model(
                model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
            ).base_model.model
            model.to(torch.bfloat16).to(dtype)
        if checkpointing:
            settings = {"use_reentrant": False, "context_fn": running_anew}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
            model.enable_input_require_grads()
        attach_training(model)
        return model

    with torch_alone():
        exact_loss, exact = gradients(made(torch.float32), some_batch())
        torchs_loss, torchs = gradients(made(torch.bfloat16), some_batch())
    model = made(torch.bfloat16)
    with layers_by_ours() as calls:
        loss, found = gradients(model, some_batch())
    assert len(calls) == (4 if checkpointing else 2)
    assert distance(found, exact) <= 1.3 * distance(torchs, exact)
    assert abs(loss - exact_loss) <= abs(torchs_loss - exact_loss) + 0.01 * exact_loss
    assert all("forward" not in module.__dict__ for module in model.modules())


def test_a_changed_model_runs_by_its_own_code() -> None:
    assert not native_layers.takes(small_llama(torch.float32, tf.GemmaConfig, hidden_act="silu")), "its norms add 1"
    model = small_llama(torch.float32)
    attach_training(model)
    calls: list[Any] = []
    model.model.layers[1].mlp.register_forward_hook(lambda *_: calls.append(1))
    with layers_by_ours() as ours:
        gradients(model, some_batch())
    assert calls
    assert not ours
