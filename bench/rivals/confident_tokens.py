"""Rivals that were trained to write several tokens of one answer in one forward, taken by confidence and not verified.

Behind what is certain stand masks; the model says a token and its probability for each. Two ways to take them:

    lexical units      causal. The masks stand for the next tokens; they are taken from the left as long as the model is
    (LUD)              sure of each (Sun et al. 2024, arXiv 2405.15208). With no masks it is plain greedy decoding.
    block diffusion    the answer in blocks; in its block every token sees every other one. All that the model is sure
                       of are filled in, in any order, until no mask is left (Fast-dLLM v2, arXiv 2509.26328).

Both predict a token from the place before it, so that the head of the autoregressive model is used as it was trained.
The keys and values of what is certain are kept, everything else is forwarded again. A block's are computed when it is
full, together with the first forward of the next block (Fast-dLLM v2 makes a forward more for that; its blocks are 32
tokens, with smaller ones inside that it also keeps).

    text       { \\n "Brand" : | mask mask mask         certain | block
    predicted              "Ni ke ",   \\n              each from the place before it
    threshold              .99 .97 .95  .4             0.9: three are taken

In both, what was never verified may be wrong: thresholds buy speed with quality.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from hpd_core.baselines.autoregressive import AutoregressiveBaseline
from hpd_core.config import EngineConfig
from hpd_core.models import loading
from hpd_core.models.loading import Weights
from hpd_core.requests.calls import ExtractionMetrics
from pipelines.errors import UsageError

_RECORD = "confident_tokens.json"


@dataclass(slots=True)
class Row:
    """One answer that is being written.

    Attributes:
        text: what is certain, the prompt first.
        block: tokens behind it, masks among them.
        cached: of `text`, how many tokens' keys and values are kept.
        end: tokens of the answer, once it has ended by itself or by its limit.
        closed: it ended by itself.
        checked: of the answer, how many tokens do not end it.
    """

    text: list[int]
    prompt_length: int
    block: list[int]
    cached: int = 0
    end: int | None = None
    closed: bool = False
    checked: int = 0
    num_forwards: int = 0

    @property
    def answer(self) -> list[int]:
        """What is certain of it."""
        return self.text[self.prompt_length :]


@dataclass(frozen=True, slots=True)
class Way(ABC):
    """Which tokens see which, and which predictions are taken.

    Attributes:
        mask_id: the token of a mask, which no answer has.
        num_masks: of an empty block.
        threshold: the probability from which the model is sure.
    """

    mask_id: int
    num_masks: int
    threshold: float

    @property
    @abstractmethod
    def num_predicted(self) -> int:
        """Tokens that are predicted, the first behind the text."""

    @abstractmethod
    def sights(self, positions: Tensor, prompt_length: int) -> Tensor:
        """The last position that each of these sees."""

    @abstractmethod
    def take(self, row: Row, tokens: Sequence[int], sure: Sequence[float]) -> None:
        """Puts what is taken into `row.text` and `row.block`. Tokens and their probabilities: one a predicted place."""


class LexicalUnits(Way):
    """Masks stand behind the text; tokens are taken from the left, the first in any case."""

    __slots__ = ()

    @property
    def num_predicted(self) -> int:
        """The text's last token predicts, too."""
        return self.num_masks + 1

    def sights(self, positions: Tensor, prompt_length: int) -> Tensor:
        """As a causal model has it."""
        return positions

    def take(self, row: Row, tokens: Sequence[int], sure: Sequence[float]) -> None:
        """Up to the first that the model is not sure of."""
        unsure = next((place for place, share in enumerate(sure) if share < self.threshold), len(sure))
        row.text += tokens[: max(1, unsure)]


class BlockDiffusion(Way):
    """Blocks of as many tokens as there are masks, filled in any order; at least one token a forward."""

    __slots__ = ()

    @property
    def num_predicted(self) -> int:
        """What the last place of a block predicts belongs to the next one."""
        return self.num_masks

    def sights(self, positions: Tensor, prompt_length: int) -> Tensor:
        """The prompt is causal; a token of the answer sees its whole block and all earlier ones."""
        ends = prompt_length + ((positions - prompt_length) // self.num_masks + 1) * self.num_masks - 1
        return torch.where(positions < prompt_length, positions, ends)

    def take(self, row: Row, tokens: Sequence[int], sure: Sequence[float]) -> None:
        """All that the model is sure of; of an empty block the first in any case, which what is certain predicts."""
        open_places = [place for place, token in enumerate(row.block) if token == self.mask_id]
        best = 0 if row.block[0] == self.mask_id else max(open_places, key=lambda place: sure[place])
        for place in open_places:
            if place == best or sure[place] >= self.threshold:
                row.block[place] = tokens[place]
        if self.mask_id not in row.block:
            row.text += row.block
            row.block = [self.mask_id] * self.num_masks


class _Columns:
    """Where the tokens of the current forward are kept: int64 [B, W], and how many columns anybody sees."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.places = torch.empty(0, 0, dtype=torch.int64)
        self.num_seen = 0


class _PositionLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values by position: what is written again replaces what was there. One column more is for padding."""

    def __init__(self, columns: _Columns) -> None:
        super().__init__()
        self._columns = columns

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """[B, width + 1, heads, size]."""
        batch, heads, _, size = key_states.shape
        shape = (batch, self._columns.width + 1, heads)
        self.keys = key_states.new_zeros(*shape, size)
        self.values = value_states.new_zeros(*shape, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Writes [B, heads, W, size] and returns all that anybody sees."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows = torch.arange(len(key_states), device=key_states.device)[:, None]
        found = []
        for kept, new in ((self.keys, key_states), (self.values, value_states)):
            kept[rows, self._columns.places] = new.transpose(1, 2)
            found.append(kept[:, : self._columns.num_seen].transpose(1, 2))
        return found[0], found[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns that anybody sees, from the first."""
        return self._columns.num_seen, 0

    def get_seq_length(self) -> int:
        """As many."""
        return self._columns.num_seen

    def get_max_length(self) -> int:
        """Columns there are."""
        return self._columns.width


class ConfidentDecoder(AutoregressiveBaseline):
    """`ar` in all but how the answer is written: same prompts, same reading of values, same attention.

    Attributes:
        way: how tokens are taken; another threshold may be put there between submissions.
        num_forwards: of all answers so far, those that each took part in.
    """

    def __init__(self, model: Any, tokenizer: Any, config: EngineConfig, way: Way) -> None:
        """As the baseline's, and it raises the same."""
        super().__init__(model, tokenizer, config)
        self.way = way
        self.num_forwards = 0
        self._braces = frozenset(self._has_brace.nonzero()[:, 0].tolist())

    def _generate(
        self, prompts: list[list[int]], max_new_tokens: int, metrics: ExtractionMetrics
    ) -> list[tuple[list[int], bool]]:
        """As the baseline's: the answers' ids, and whether each ended by itself."""
        rows = self._write(prompts, max_new_tokens)
        metrics.num_steps += max(row.num_forwards for row in rows)
        metrics.value_tokens += sum(row.end or 0 for row in rows)
        return [(row.answer[: row.end], row.closed) for row in rows]

    @torch.inference_mode()
    def _write(self, prompts: list[list[int]], limit: int) -> list[Row]:
        model, masks = self._weights.model, [self.way.mask_id] * self.way.num_masks
        rows = [Row(list(prompt), len(prompt), list(masks)) for prompt in prompts]
        columns = _Columns(max(map(len, prompts)) + limit + 2 * len(masks) + 1)
        cache = Cache(layers=[_PositionLayer(columns) for _ in range(model.config.num_hidden_layers)])
        going = rows
        while still := [index for index, row in enumerate(going) if row.end is None]:
            if (
                len(still) <= len(going) // 2
            ):  # those that have ended are only worth a copy of the rest if they are many
                cache.reorder_cache(torch.tensor(still, device=model.device))
                going = [going[index] for index in still]
            self._forward(going, cache, columns)
            for row in going:
                self._note_end(row, limit)
        self.num_forwards += sum(row.num_forwards for row in rows)
        return rows

    def _forward(self, rows: Sequence[Row], cache: Cache, columns: _Columns) -> None:
        """One forward of what is not kept of each row, padded on the left, and what is taken of its predictions."""
        fed = [[] if row.end is not None else [*row.text[row.cached :], *row.block] for row in rows]
        width = max(map(len, fed))
        padding = [width - len(tokens) for tokens in fed]
        ids = torch.tensor([[self.way.mask_id] * pad + tokens for pad, tokens in zip(padding, fed, strict=True)])
        steps = torch.arange(width) - torch.tensor(padding)[:, None]
        positions = torch.tensor([row.cached for row in rows])[:, None] + steps
        sights = [self.way.sights(own, row.prompt_length) for own, row in zip(positions, rows, strict=True)]
        columns.places = torch.where(steps >= 0, positions, columns.width).to(self._weights.model.device)
        columns.num_seen = int(positions.max()) + 1
        logits = self._logits(ids, positions, torch.where(steps >= 0, torch.stack(sights), 0), steps, cache, columns)
        logits[..., self.way.mask_id] = -torch.inf
        best, tokens = logits.max(dim=-1)
        sure = (best - logits.logsumexp(dim=-1)).exp()
        for row, own_tokens, own_sure in zip(rows, tokens.tolist(), sure.tolist(), strict=True):
            if row.end is None:
                row.cached = len(row.text)
                row.num_forwards += 1
                self.way.take(row, own_tokens, own_sure)

    def _logits(
        self, ids: Tensor, positions: Tensor, sights: Tensor, steps: Tensor, cache: Cache, columns: _Columns
    ) -> Tensor:
        """fp32 [B, predicted, vocabulary]; ids, positions, sights, steps: [B, W], padding on the left at steps < 0."""
        device, dtype = self._weights.model.device, self._weights.model.dtype
        seen = torch.arange(columns.num_seen) <= sights[:, :, None]
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
        first = ids.shape[1] - self.way.num_masks - 1
        kept = torch.arange(first, first + self.way.num_predicted).clamp(min=0)  # a full text predicts no first token
        logits: Tensor = self._weights.model(
            input_ids=ids.to(device),
            attention_mask=mask[:, None].to(device),
            position_ids=torch.where(steps >= 0, positions, 0).to(device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=kept.to(device),
        ).logits
        return logits.float()

    def _note_end(self, row: Row, limit: int) -> None:
        """Whether the answer has ended: at an end of text, a line with the closing brace, or its limit."""
        if row.end is not None:
            return
        answer = row.answer[:limit]
        for number in range(row.checked + 1, len(answer) + 1):
            token = answer[number - 1]
            if token in self._end_ids or (token in self._braces and self._closes(answer[:number])):
                row.end, row.closed = number, True
                return
        row.checked = len(answer)
        if len(answer) == limit:
            row.end = limit

    def _closes(self, answer: list[int]) -> bool:
        return "\n}" in "\n" + self._segments.decode([answer])[0]


WAYS: dict[str, type[Way]] = {"lexical-units": LexicalUnits, "block-diffusion": BlockDiffusion}
"""By the names of the objectives that they are trained with."""


def write_record(folder: Path, objective: str, num_masks: int, mask_id: int) -> None:
    """Notes beside a model's weights how it was trained."""
    record = {"objective": objective, "num_masks": num_masks, "mask_id": mask_id}
    (folder / _RECORD).write_text(json.dumps(record), encoding="utf-8")


def load_decoder(folder: Path, config: EngineConfig, objective: str, threshold: float) -> ConfidentDecoder:
    """The decoder of a model that bench/train_confident.py has written.

    Raises:
        ModelError: it cannot be loaded.
        UsageError: it was not trained so.
    """
    path = folder / _RECORD
    record = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if record.get("objective") != objective:
        raise UsageError(
            f"{folder} holds no model that was trained for {objective}: python bench/train_confident.py --objective "
            f"{objective}"
        )
    way = WAYS[objective](record["mask_id"], record["num_masks"], threshold)
    weights = Weights.load(str(folder), config, None)
    tokenizer = loading.load_tokenizer(str(folder), config)
    return ConfidentDecoder(weights.model, tokenizer, weights.settings(config), way)


def mask_of(tokenizer: Any) -> int:
    """The id of a special token that answers do not end with, to stand for masks.

    Raises:
        UsageError: there is none.
    """
    special = sorted(number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    found = next((number for number in special if number != tokenizer.eos_token_id), None)
    if found is None:
        raise UsageError("the model's tokenizer has no special token beside the end of a text, to stand for masks")
    return int(found)
