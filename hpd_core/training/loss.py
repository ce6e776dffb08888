"""Training forward: several examples of a category in one packed row, their shared prefix computed once.

    packed row     prefix | example 0 | example 1 | ...        [1, T], no padding: linear layers see tokens only
    attention      the prefix attends to itself; the examples attend in a padded batch, [P, R] rows against
                   [P, S + R] columns: the prefix's keys and their own

The gradient of the prefix is the sum over its examples, so packing changes no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from hpd_core.attention.dispatch import reach
from hpd_core.attention.eager import eager_attention
from hpd_core.attention.plan import additive, fold, unfold
from hpd_core.errors import ModelError
from hpd_core.families.attention_methods import steer_query_scales
from hpd_core.families.table import most_seen
from hpd_core.layers.forward import wanted_logits
from hpd_core.layout import visible
from hpd_core.mixers.running import PackedFunction, running, step_of
from hpd_core.native import library, linear
from hpd_core.training import mixing, native_attention, native_layers
from hpd_core.training.examples import IGNORED, Example
from hpd_core.training.mixing import TextOrder

ATTENTION_NAME = "hpd_training"
"""Name under which the attention is registered with transformers."""

_ANOTHER = "fine-tune a model of another family"


_ALIGNMENT = 8
"""Alignment of a mask's rows, in elements: torch's memory-efficient kernel would copy an unaligned one in every
layer."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Query rows that attend in one call: P examples of R rows to C columns.

    Attributes:
        rows: int64 [P * R], the packed row's token of each query row; padding repeats a token.
        columns: int64 [P * C], the packed row's token of each column.
        unrows: int64 [t], the query row of each of the group's tokens, in the packed row's order.
        counts: each example's number of tokens in the group.
        q: scope, last scope, sight and step of rows [P, R]; padding rows see position 0.
        k: scope, last scope, position and step of columns [P, C]; padding columns are at a position that nothing sees.
    """

    rows: Tensor
    columns: Tensor
    unrows: Tensor
    counts: Sequence[int]
    q: tuple[Tensor, Tensor, Tensor, Tensor]
    k: tuple[Tensor, Tensor, Tensor, Tensor]
    _biases: dict[tuple[int | None, int, torch.dtype], Tensor] = field(default_factory=dict)

    def bias(self, window: int | None, group: int, dtype: torch.dtype) -> Tensor:
        """Return the additive mask [P, 1, R * G, C]; equal layers share it."""
        key = (window, group, dtype)
        if key not in self._biases:
            seen = self.seen(window)
            self._biases[key] = additive(seen, group, dtype, _ALIGNMENT)
        return self._biases[key]

    def seen(self, window: int | None) -> Tensor:
        """Return which columns each row sees, bool [P, R, C]."""
        (q_scopes, _, q_sights, q_steps), (*_, k_steps) = self.q, self.k
        k_scopes, k_lasts, k_positions = (place[:, None, :] for place in self.k[:3])
        seen = visible(q_scopes[:, :, None], q_sights[:, :, None], k_scopes, k_lasts, k_positions, window)
        reached: Tensor = seen & (k_steps[:, None, :] <= q_steps[:, :, None])
        return reached


@dataclass(slots=True)
class TrainingBatch:
    """Examples with one prefix, packed.

    Attributes:
        token_ids, positions: int64 [1, T]
        target_rows: int64 [N], the tokens of the row that predict something.
        targets: int64 [N], the ids that they predict, IGNORED for padding.
        groups: the prefix (if there is one) and the examples.
        num_documents: number of documents in it.
        order: for layers beside attention, which token follows which.
        num_calls, num_mixed: calls made of attention and of such layers, to detect a model that bypasses them.
    """

    token_ids: Tensor
    positions: Tensor
    target_rows: Tensor
    targets: Tensor
    groups: Sequence[_Group]
    num_documents: int
    order: TextOrder
    num_calls: int = 0
    num_mixed: int = 0
    _problems: dict[int | None, native_attention.Problems] = field(default_factory=dict)

    def problems(self, window: int | None) -> native_attention.Problems:
        """Return the groups in the format of our own attention; equal layers share it."""
        if window not in self._problems:
            counts, shared, seen = list[int](), list[int](), list[Tensor]()
            for group in self.groups:
                whom = group.seen(window)
                counts += group.counts
                shared += [whom.shape[2] - whom.shape[1]] * len(whom)
                seen += F.pad(whom, (0, -whom.shape[2] % native_attention.COLUMNS))
            self._problems[window] = native_attention.Problems(counts, shared, seen)
        return self._problems[window]

    def call(self, ours: PackedFunction, *args: Any, **kwargs: Any) -> Any:
        """Call a function, or the one that replaces it in training, in place of `LayerStep.call`."""
        if (trained := mixing.TRAINED.get(ours)) is not None:
            return trained(self.order, *args, **kwargs)
        self.num_mixed += 1
        return ours(self, *args, **kwargs)

    @property
    def num_tokens(self) -> int:
        """Number of tokens to forward."""
        return self.token_ids.shape[1]


def collate(examples: Sequence[Example], device: torch.device | str = "cpu", multiple: int = 1) -> TrainingBatch:
    """Pack examples of one category.

    Args:
        multiple: tokens and targets are padded to a multiple of it with tokens that nothing sees, so that few shapes
            occur: libraries prepare a kernel for every new one.

    Raises:
        ValueError: there are no examples, or their prefixes differ.
    """
    if not examples:
        raise ValueError("no examples")
    size = examples[0].num_prefix_tokens
    first = examples[0].filled
    for example in examples:
        if example.num_prefix_tokens != size or (example.filled.token_ids[:size] != first.token_ids[:size]).any():
            raise ValueError("the examples of a batch must share their prefix")
    packed = {
        name: np.concatenate(
            [getattr(first, name)[:size], *(getattr(example.filled, name)[size:] for example in examples)]
        )
        for name in ("token_ids", "positions", "sights", "scopes", "lasts", "steps", "labels")
    }
    arrays = {name: torch.from_numpy(array).to(device) for name, array in packed.items()}
    places = [arrays[name] for name in ("scopes", "lasts", "positions", "steps")]
    lengths = [example.num_own_tokens for example in examples]
    groups = [_own_group(size, lengths, places, arrays["sights"])]
    if size:
        groups.insert(0, _prefix_group(size, places))
    target_rows = (arrays["labels"] != IGNORED).nonzero()[:, 0]
    targets = arrays["labels"][target_rows]
    num_padding, num_ignored = -len(packed["token_ids"]) % multiple, -len(targets) % multiple
    return TrainingBatch(
        token_ids=F.pad(arrays["token_ids"], (0, num_padding))[None],
        positions=F.pad(arrays["positions"], (0, num_padding))[None],
        target_rows=F.pad(target_rows, (0, num_ignored)),
        targets=F.pad(targets, (0, num_ignored), value=IGNORED),
        groups=groups,
        num_documents=sum(example.num_documents for example in examples),
        order=TextOrder(size, lengths, packed["scopes"], packed["positions"], num_padding, device),
    )


def _prefix_group(size: int, places: Sequence[Tensor]) -> _Group:
    rows = torch.arange(size, device=places[0].device)
    scopes, lasts, positions, steps = (place[None, :size] for place in places)
    return _Group(rows, rows, rows, [size], (scopes, lasts, positions, steps), (scopes, lasts, positions, steps))


def _own_group(size: int, lengths: Sequence[int], places: Sequence[Tensor], sights: Tensor) -> _Group:
    device = places[0].device
    width = max(lengths)
    starts = size + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    offsets = np.arange(width)
    real = offsets < np.asarray(lengths)[:, None]  # [P, R]
    rows = torch.from_numpy(np.where(real, starts[:, None] + offsets, size)).to(device)
    is_real = torch.from_numpy(real).to(device)
    prefix = torch.arange(size, device=device).expand(len(lengths), size)
    columns = torch.cat([prefix, rows], dim=1)
    scopes, lasts, positions, steps = (place[rows] for place in places)
    nowhere = torch.iinfo(positions.dtype).max
    own_positions = positions.masked_fill(~is_real, nowhere)
    own = (scopes, lasts, own_positions, steps)
    keys = [torch.cat([place[prefix], of_own], 1) for place, of_own in zip(places, own, strict=True)]
    return _Group(
        rows=rows.flatten(),
        columns=columns.flatten(),
        unrows=is_real.flatten().nonzero()[:, 0],
        counts=lengths,
        q=(scopes, lasts, sights[rows].masked_fill(~is_real, 0), steps),
        k=(keys[0], keys[1], keys[2], keys[3]),
    )


def training_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    hpd_training: TrainingBatch | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute attention of one layer (transformers' AttentionInterface), as `packed_attention` but with a gradient.

    Args:
        query: [1, H, T, D]; key, value: [1, H_kv, T, D] and [1, H_kv, T, D_v].
        hpd_training: passed to the model's forward as a keyword, which some models lose on the way.

    Returns:
        [1, T, H, D_v] and None for the attention weights.
    """
    batch = hpd_training or step_of(module)
    assert isinstance(batch, TrainingBatch)
    batch.num_calls += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)  # [T, H, D]
    eager = softcap is not None or s_aux is not None
    if not eager and native_attention.takes(q, k, v):
        problems = batch.problems(reach(module, sliding_window))
        return native_attention.attend(q, k, v, problems, scale)[None], None
    attend: Callable[..., Tensor] = eager_attention if eager else sdpa_attention
    outputs = []
    for group in batch.groups:
        num_prompts = group.q[0].shape[0]
        keys, values = (
            rows.index_select(0, group.columns).view(num_prompts, -1, *rows.shape[1:]).transpose(1, 2)
            for rows in (k, v)
        )
        bias = group.bias(reach(module, sliding_window), q.shape[1] // k.shape[1], q.dtype)
        folded = fold(q.index_select(0, group.rows), num_prompts, k.shape[1])
        # Here, and not around the step: of a layer that is forwarded once more, for its gradients, it holds, too.
        with fused_kernels(q.device):
            attended = attend(folded, keys, values, bias, scale, softcap=softcap, sinks=s_aux)
        outputs.append(unfold(attended, q.shape[1]).index_select(0, group.unrows))
    padding = q.new_zeros(q.shape[0] - sum(len(rows) for rows in outputs), *outputs[0].shape[1:])
    return torch.cat([*outputs, padding])[None], None


def attach_training(model: Any) -> None:
    """Make the model call the attention above.

    Raises:
        ModelError: the model does not go through transformers' attention interface, or picks what a token attends to.
    """
    mixing.calls_of(model)
    name = model.config.model_type
    if (most := most_seen(model.config)) is not None:
        raise ModelError(
            f"{name} picks {most} tokens for each token to attend to, which is not trained here: "
            f"fine-tune a model that attends to all of them"
        )
    transformers.AttentionInterface.register(ATTENTION_NAME, training_attention)
    steer_query_scales(model)
    try:
        model.set_attn_implementation(ATTENTION_NAME)
    except ValueError as error:
        raise ModelError(f"{name} models take no custom attention: {error}") from error


def forward_logits(model: Any, batch: TrainingBatch) -> Tensor:
    """Return the logits [N, vocabulary] that predict the batch's targets.

    Args:
        model: after `attach_training`; may be wrapped (DistributedDataParallel).

    Raises:
        ModelError: not all layers went through the attention interface.
    """
    unwrapped = model.module if isinstance(model, DistributedDataParallel) else model
    num_mixed = mixing.calls_of(unwrapped)
    with running({id(module): batch for module in unwrapped.modules()}), native_layers.active(unwrapped):
        logits: Tensor = model(
            input_ids=batch.token_ids,
            position_ids=batch.positions,
            attention_mask=None,
            use_cache=False,
            logits_to_keep=batch.target_rows,
            hpd_training=batch,
        ).logits[0]
    config = unwrapped.config.get_text_config()
    num_layers = mixing.num_attending(config) if num_mixed else config.num_hidden_layers
    if batch.num_calls < num_layers:
        raise ModelError(
            f"{num_layers - batch.num_calls} of {num_layers} layers of {config.model_type} did not go through "
            f"transformers' attention interface, so that their tokens have heard of others: {_ANOTHER}"
        )
    if batch.num_mixed < num_mixed:
        raise ModelError(
            f"layers beside attention have made {batch.num_mixed} of {num_mixed} calls to ours: their tokens have "
            f"heard of others: {_ANOTHER}"
        )
    return wanted_logits(unwrapped, logits, batch.target_rows, batch.num_tokens)


def forward_loss(model: Any, batch: TrainingBatch, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the sum of the cross entropies of the batch's targets, in fp32, and how many targets are predicted right.

    Arguments and errors as `forward_logits`.
    """
    logits = forward_logits(model, batch)
    return cross_entropy(logits, batch.targets, label_smoothing)


def fused_kernels(device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which `sdpa_attention` uses those of torch's kernels that suit packed rows.

    It is entered for a whole forward. cuDNN's kernel, which torch prefers on Hopper, is planned on the host for every
    new shape, and nearly every step has one. Flash attention takes no mask, except on a CPU.
    """
    if device.type != "cuda":
        return nullcontext()
    allowed: AbstractContextManager[None] = sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    return allowed


def sdpa_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, **_: Any) -> Tensor:
    """Attend by torch's fused kernel. q: [P, H_kv, R * G, D]; k, v: [P, H_kv, C, D]; bias: [P, 1, R * G, C]."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the summed cross entropy in fp32, as torch's, and how many targets are the likeliest token (the first of
    equals).

    Args:
        logits: [N, V]
        targets: int64 [N]; IGNORED rows have no target.

    Returns:
        Scalars; the second one, int64, has no gradient.
    """
    function = _NativeCrossEntropy if linear.takes(logits) and library.is_here() else _CrossEntropy
    loss, right = function.apply(logits, targets, label_smoothing)  # type: ignore[no-untyped-call]
    return loss, right


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy, computed a few rows at a time.

    torch's own makes four fp32 copies of [N, vocabulary]; this one keeps a single one in the logits' dtype, and its
    blocks stay in the cache. The gradient is known in the forward: softmax minus the target.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Compute as `cross_entropy`."""
        gradient = torch.empty_like(logits)
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        right = torch.zeros((), dtype=torch.int64, device=logits.device)
        at_once = _LOSS_ROWS_AT_ONCE.get(logits.device.type, 256)
        for first in range(0, len(logits), max(1, at_once)):
            rows = slice(first, first + at_once)
            block = logits[rows].float()
            counts = targets[rows, None] != IGNORED
            right += (block.argmax(-1) == targets[rows]).sum()
            target = targets[rows, None].clamp(min=0)
            logsumexp = block.logsumexp(-1, keepdim=True)
            likely = (1 - smoothing) * block.gather(1, target) + smoothing * block.mean(-1, keepdim=True)
            total += ((logsumexp - likely) * counts).sum()
            softmax = (block - logsumexp).exp_()
            softmax -= smoothing / block.shape[1]
            softmax.scatter_add_(1, target, softmax.new_full(target.shape, smoothing - 1))
            gradient[rows] = softmax.mul_(counts)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(right)
        return total, right

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the logits."""
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0].to(gradient.dtype), None, None


_LOSS_ROWS_AT_ONCE = {"cpu": 32, "cuda": 2048}


class _NativeCrossEntropy(torch.autograd.Function):
    """Cross entropy on a CPU: logits are read once in each direction, and kept in place of their gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Compute as `cross_entropy`."""
        targets = targets.contiguous()
        tokens, _, normalizers = linear.choose(logits)
        likely = (1 - smoothing) * logits.gather(1, targets.clamp(min=0)[:, None])[:, 0].float()
        if smoothing:
            likely += smoothing * logits.mean(-1, dtype=torch.float32)
        ctx.smoothing = smoothing
        ctx.save_for_backward(logits, targets, normalizers)
        right = (tokens == targets).sum()
        ctx.mark_non_differentiable(right)
        return (normalizers - likely)[targets != IGNORED].sum(), right

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the logits."""
        logits, targets, normalizers = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        library.function("cross_entropy_backward", logits.dtype)(
            *(x.data_ptr() for x in (logits, normalizers, targets, gradient)),
            *(*logits.shape, ctx.smoothing, float(gradients[0]), torch.get_num_threads()),
        )
        return gradient, None, None
