"""Steering: makes a model call our attention, and proves that it obeys.

Range of a model's tokens: windows and chunks, shortened so that a short text reaches beyond them.

A window of 4,096 tokens has no effect in a text that is short enough to decode at every start. If it is as short as a
line, a few lines show its effect. Then the model's own attention applies it, and ours does if it knows of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor

from hpd_core.attention.dispatch import ATTENTION_NAME, current_batch, packed_attention
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt
from hpd_core.errors import ModelError, first_line
from hpd_core.families import attention_methods
from hpd_core.families.table import family_of, refuse_unsupported
from hpd_core.layers.fp8 import is_fp8
from hpd_core.layout import Branch, tree_layout
from hpd_core.models import quantized_checkpoints
from hpd_core.system.device import is_out_of_memory


def attach(model: Any) -> None:
    """Make the model call our attention (`verify` proves that it obeys).

    Raises:
        ModelError: the model does not go through transformers' attention interface.
    """
    refuse_unsupported(model.config)
    transformers.AttentionInterface.register(ATTENTION_NAME, packed_attention)
    attention_methods.steer_sparse(model)
    attention_methods.steer_query_scales(model)
    _quieten(model)
    name, family = model.config.model_type, family_of(model.config)
    if getattr(model, "_is_stateful", False) and not family.mixed:
        raise ModelError(
            f"{name} models are recurrent by code that HPD does not know, so that branches cannot begin from the state "
            f"of their document: take a model of a family in docs/models.md"
        )
    has_no_attention = family.mixed and not getattr(model.config.get_text_config(), "layer_types", None)
    if not (has_no_attention or _text_model(model)._can_set_attn_implementation()):
        raise ModelError(
            f"{name} models attend by code of their own and not through transformers' "
            f"attention interface: take a model of a family in docs/models.md"
        )
    try:
        _use(model, ATTENTION_NAME)
    except ValueError as error:
        raise ModelError(f"{name} models take no custom attention: {error}") from error


def _quieten(model: Any) -> None:
    """Skip transformers' check of the ids for padding, before every forward of GPT and GPT-2, while our decoder runs:
    the host would wait for the device.
    """
    for module in model.modules():
        warn = getattr(module, "warn_if_padding_and_no_attention_mask", None)
        if warn is not None and "warn_if_padding_and_no_attention_mask" not in module.__dict__:
            module.warn_if_padding_and_no_attention_mask = partial(_unless_ours, warn)


def _unless_ours(warn: Callable[..., None], *arguments: Any) -> None:
    if current_batch() is None:
        warn(*arguments)


def verify(model: Any, tokenizer: Any, decoder: Decoder, expected: Sequence[Tensor] | None = None) -> None:
    """Prove on some lines of text that the model obeys our masks and positions, and that the likeliest token is chosen.

    Two branches after a shared trunk must be continued as by two ordinary causal forwards with the model's own
    attention. This must also hold with windows and chunks that are shorter than the text.

    Args:
        expected: `probe` of the model as it was before it was cut into parts.

    Raises:
        ModelError: it does not obey.
    """
    name = model.config.model_type
    if (seen := _difference(model, tokenizer, decoder, _LINE, expected)) is not None:
        raise ModelError(
            f"{name} models do not obey attention masks or the choice of tokens: a token has log-probability "
            f"{seen.ours:.4f} where an ordinary forward gives {seen.wanted:.4f}, and {seen.likeliest:.4f} to the "
            f"likeliest; take a model of a family in docs/models.md"
        )
    if expected is not None:
        return
    with shortened(model) as settings:
        seen = _difference(model, tokenizer, decoder, _LINES) if settings else None
    if seen is None:
        return
    with own_attention(model):
        unlimited = probe(model, tokenizer, _LINES)[seen.branch][seen.token].item()
    # Experts that rounding chooses may move a number far: who sees too much is nearer to who sees all.
    if _is_exact(model) or abs(seen.ours - unlimited) < abs(seen.ours - seen.wanted):
        raise ModelError(
            f"{name} models do not obey {', '.join(settings)} in steered attention: behind it, a token has "
            f"log-probability {seen.ours:.4f} where an ordinary forward gives {seen.wanted:.4f}, and "
            f"{seen.likeliest:.4f} to the likeliest; take a model of a family in docs/models.md"
        )


_Text = tuple[str, ...]
"""Trunk and its branches."""

_LINE: _Text = ("The red bicycle has two wheels and", " a comfortable saddle made of brown", " one bright lamp that")

_LINES: _Text = (
    "The code of the lock is 7391 and the name of the dog is Balthasar.\n"
    "On the shelf stand a green bottle, three books about birds, a lamp without a shade and a neighbour's old radio.\n"
    "Nobody has touched them since the summer, when the window was open and rain came in for two whole days.\n"
    "Then the shelf was dried, painted white and put back where it had been, between the door and the stove.\n",
    "The code of the lock is",
    "The name of the dog is",
)
"""Text whose branches only continue correctly if they see all of the trunk."""


_ROUNDINGS = 8
"""Number of tries, of a few milliseconds each for a tiny model; others need none."""


@dataclass(frozen=True, slots=True)
class _Difference:
    """Log-probabilities of a branch's next token, by our decoder and by the model itself, and by the latter of its
    likeliest token. They are to be one number.
    """

    branch: int
    token: int
    ours: float
    wanted: float
    likeliest: float

    @property
    def size(self) -> float:
        # Both the likeliest and the chosen token may be off by as much.
        return max(abs(self.wanted - self.ours), (self.likeliest - self.wanted) / 2)


def _is_exact(model: Any) -> bool:
    """Return whether sums are those of the model itself except for the last digits.

    Half precision moves log-probabilities by tenths, and so may 8 bits, which round activations: the last bit of a sum
    decides to which side. Seeing a wrong token moves them by more.
    """
    in_8_bits = getattr(model, "is_loaded_in_8bit", False) or is_fp8(model)
    return model.dtype == torch.float32 and not (in_8_bits or quantized_checkpoints.rounds_activations(model))


def _difference(
    model: Any, tokenizer: Any, decoder: Decoder, text: _Text, expected: Sequence[Tensor] | None = None
) -> _Difference | None:
    """Return the first difference, or None. Raise `ModelError` if the model's own log-probabilities are not numbers."""
    prompt = run_probe(model, tokenizer, decoder, text)
    is_exact, is_cut = _is_exact(model), expected is not None
    tolerance = 1e-3 if is_exact else 0.5
    if expected is None:
        with own_attention(model):
            expected = probe(model, tokenizer, text)
    for branch, (logprobs, found, decoded) in enumerate(zip(expected, prompt.tokens, prompt.logprobs, strict=True)):
        wanted = logprobs[found[0]].item()
        if math.isnan(wanted):
            raise ModelError(
                f"the model's own numbers are not finite (NaN) in {model.dtype}: weights that are damaged, or a dtype "
                f"that is too small for this model; try another engine.dtype, or fetch the weights anew"
            )
        seen = _Difference(branch, found[0], decoded[0], wanted, logprobs.max().item())
        if seen.size < tolerance:
            continue
        if is_exact or is_cut or not seen.size < 2 * _moved_by_rounding(model, tokenizer, text, seen):
            return seen
    return None


def _moved_by_rounding(model: Any, tokenizer: Any, text: _Text, seen: _Difference) -> float:
    """Return how far the model itself moves a log-probability when the last bits of its embeddings change.

    Most models move by hundredths. Some move by several, where rounding chooses experts or wide weights amplify it.
    """
    generator = torch.Generator()

    def round_otherwise(_module: Any, _args: Any, embedded: Tensor) -> Tensor:
        signs = torch.randint(0, 2, embedded.shape, generator=generator).to(embedded) * 2 - 1
        return embedded * (1 + torch.finfo(embedded.dtype).eps * signs)

    hook = model.get_input_embeddings().register_forward_hook(round_otherwise)
    try:
        with own_attention(model):
            moved = [probe(model, tokenizer, text)[seen.branch][seen.token].item() for _ in range(_ROUNDINGS)]
    finally:
        hook.remove()
    return max(abs(each - seen.wanted) for each in moved)


def run_probe(model: Any, tokenizer: Any, decoder: Decoder, text: _Text = _LINE) -> Prompt:
    """Run some text through our decoder, in a row after a copy of it. Raise `ModelError` if the model does not support
    steered attention.
    """
    trunk, *branches = tokenizer(list(text), add_special_tokens=False)["input_ids"]
    layout = tree_layout([], trunk, [Branch(tokens, 1) for tokens in branches])
    prompts = [Prompt(layout, None) for _ in range(2)]
    decoder.add(prompts)
    name = model.config.model_type
    try:
        while decoder.has_work:
            decoder.step()
    except (TypeError, RuntimeError, KeyError, MemoryError) as error:
        if is_out_of_memory(error):
            raise ModelError(f"the model leaves no memory for a first step on {model.device}: {error}") from error
        raise ModelError(
            f"{name} models do not work with steered attention: {first_line(error)}; take a model of a family in "
            f"docs/models.md"
        ) from error
    return prompts[-1]


@torch.inference_mode()
def probe(model: Any, tokenizer: Any, text: _Text = _LINE) -> list[Tensor]:
    """Return each branch's log-probabilities of its next token, [vocabulary], by the model's own attention, which must
    be set.
    """
    trunk, *branches = tokenizer(list(text), add_special_tokens=False)["input_ids"]
    found = []
    for tokens in branches:
        ids = torch.tensor([[*trunk, *tokens]], device=model.device)
        try:
            logits = model(input_ids=ids, use_cache=False).logits
        except RuntimeError as error:
            if is_out_of_memory(error) or model.dtype == torch.float32:
                raise
            raise ModelError(
                f"transformers itself fails to run {model.config.model_type} models in {model.dtype}, so that nothing "
                f"can be proved ({first_line(error)}): set engine.dtype to float32"
            ) from error
        found.append(logits[0, -1].float().log_softmax(-1).cpu())
    return found


def own_attentions(model: Any) -> Sequence[str]:
    """Return the names of transformers' attentions that the model supports; the first is the fastest as a rule."""
    softcap = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    takes_sdpa = getattr(model, "_supports_sdpa", False) and softcap is None
    return ("sdpa", "eager") if takes_sdpa else ("eager",)


def use_own_attention(model: Any, name: str | None = None) -> None:
    """Set an attention of transformers' own: that of `own_attentions` with this name, or the first."""
    _use(model, name or own_attentions(model)[0])


@contextmanager
def own_attention(model: Any, name: str | None = None) -> Iterator[None]:
    """Restore an attention of transformers' own (see above) while the context is entered."""
    use_own_attention(model, name)
    try:
        yield
    finally:
        _use(model, ATTENTION_NAME)


@contextmanager
def our_attention(model: Any) -> Iterator[None]:
    """Set our attention while the context is entered. Raise `ModelError` as `attach`."""
    before = _text_model(model).config._attn_implementation
    attach(model)
    try:
        yield
    finally:
        if before != ATTENTION_NAME:
            _use(model, before)


def _use(model: Any, name: str) -> None:
    if not _text_model(model)._can_set_attn_implementation():
        model.config._attn_implementation = name  # they have no interface: what masks they make depends on it
    else:
        _text_model(model).set_attn_implementation(name)


def _text_model(model: Any) -> Any:
    """Return the model, or the text tower of a multimodal one: parts that read images may have no interface."""
    is_text = model.config.get_text_config() is model.config
    return model if is_text else model.get_decoder()


SHORT = 24
"""Length of shortened windows in tokens; the text that is decoded with them is several times as long."""

_SETTINGS = (
    *("sliding_window", "attention_chunk_size", "window_size", "attention_window_size", "local_attention"),
    *("floor_scale", "log_scaling_n_floor"),  # Llama 4 and Inkling scale some queries anew behind so many tokens
)
_OF_SCALES = "original_max_position_embeddings"
"""Setting by which Ministral 3 and Mistral 4 scale queries, too; it is among those of their rotary embedding."""


@contextmanager
def shortened(model: Any) -> Iterator[list[str]]:
    """Limit the model's windows, chunks and query-scaling lengths to `SHORT` while the context is entered.

    Yields:
        Names of the shortened settings in the configuration with their former values; empty if none was longer.
    """
    owners = {id(each): each for each in (model.config.get_text_config(), *model.modules())}
    owners |= {id(each.config): each.config for each in model.modules() if hasattr(each, "config")}
    settings = [(vars(owner), name) for owner in owners.values() for name in _SETTINGS]
    ropes = [rope for owner in owners.values() if isinstance(rope := vars(owner).get("rope_parameters"), dict)]
    settings += [(rope, _OF_SCALES) for rope in {id(each): each for each in ropes}.values() if _scales_queries(rope)]
    before = [(holder, name, holder[name]) for holder, name in settings if _is_long(holder.get(name))]
    try:
        for holder, name, _ in before:
            holder[name] = SHORT
        yield sorted({f"{name} of {value}" for _, name, value in before})
    finally:
        for holder, name, value in before:
            holder[name] = value


def _is_long(value: Any) -> bool:
    return type(value) is int and value > SHORT


def _scales_queries(rope: dict[str, Any]) -> bool:
    return rope.get("llama_4_scaling_beta") is not None
