"""Do two engines that share no code write the same values? `tree` against another engine's answers, token by token.

Values end by themselves here: by the first token whose text holds a newline, by an end-of-text token, or at K_max.
Where two answers part, one engine has rounded past the other: the margin says how far apart the two tokens are in
fp32, by a plain forward of transformers that neither engine has part in. Noise of bfloat16 shows as margins near zero;
a large one is a bug of somebody.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console

from bench.rivals.vllm_process import VllmProcess
from bench.rivals.vllm_requests import fan_out
from bench.workloads.workload import Workload, branch_prompts
from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt
from hpd_core.models import description, loading, steering
from hpd_core.models.loading import Weights
from hpd_core.text.endings import Endings
from hpd_core.text.tokenization import SegmentTokenizer
from pipelines.config.extraction import JobConfig
from pipelines.errors import UsageError

MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Question:
    """One value that is asked for.

    Attributes:
        prompt: token ids of all that the value sees.
        limit: K_max.
    """

    product_id: str
    attribute: str
    prompt: list[int]
    limit: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A value on which two engines disagree.

    Attributes:
        ours, theirs: the texts.
        position: of the first token that differs, from 0.
        margin: log-probability of our token there minus that of theirs, in fp32; None: one answer is a beginning of
            the other.
    """

    product_id: str
    attribute: str
    ours: str
    theirs: str
    position: int
    margin: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many values are identical, and some of the others."""

    num_values: int
    num_identical: int
    differences: list[Difference]


def natural_prompts(model: Any, workload: Workload, config: EngineConfig) -> list[Prompt]:
    """The prompts of `tree`, each value bounded by K_max only."""
    return workload.prompts(model.config, config.model_copy(update={"layout": "tree"}), natural=True)


def questions(prepared: Sequence[Prompt], workload: Workload) -> list[Question]:
    """All values of the prompts, prompt by prompt."""
    found = []
    for item in prepared:
        prompts = branch_prompts(item.layout)
        for slot, prompt, limit in zip(item.slots, prompts, item.layout.max_new_tokens.tolist(), strict=True):
            record = workload.records[slot.trunk]
            attribute = workload.schemas[record.category].attributes[slot.branch]
            found.append(Question(record.id, attribute.name, prompt, limit))
    return found


def tree_answers(model: Any, prepared: Sequence[Prompt], endings: Endings, config: EngineConfig) -> list[list[int]]:
    """What the engine writes, in the order of `questions`. Values of all types are free, as another engine's are."""
    decoder = Decoder(model, endings, config, description.cache_shape(model))
    decoder.add(prepared)
    while decoder.has_work:
        decoder.step()
    return [tokens for item in prepared for tokens in item.tokens]


def compare_answers(
    asked: Sequence[Question],
    ours: Sequence[Sequence[int]],
    theirs: Sequence[Sequence[int]],
    oracle: Callable[[], Any],
    tokenizer: Any,
    max_shown: int = MAX_SHOWN,
) -> Agreement:
    """Counts identical answers, and looks closer at the first `max_shown` of the others.

    Args:
        ours, theirs: token ids per question.
        oracle: loads the model in fp32, with an attention of its own; called only if answers differ.
    """
    different = [number for number in range(len(asked)) if list(ours[number]) != list(theirs[number])]
    shown = different[:max_shown]
    judge = oracle() if shown else None
    segments = SegmentTokenizer(tokenizer)
    differences = []
    for number in shown:
        one, other = ours[number], theirs[number]
        common = min(len(one), len(other))
        position = next((n for n in range(common) if one[n] != other[n]), common)
        margin = None
        if position < common:
            margin = _margin(judge, [*asked[number].prompt, *one[:position]], one[position], other[position])
        texts = segments.decode([one, other])
        differences.append(
            Difference(asked[number].product_id, asked[number].attribute, texts[0], texts[1], position, margin)
        )
    return Agreement(len(asked), len(asked) - len(different), differences)


@torch.inference_mode()
def _margin(model: Any, tokens: list[int], one: int, other: int) -> float:
    ids = torch.tensor([tokens], device=model.device)
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[0, -1].double()
    scores = logits.log_softmax(dim=-1)
    return float(scores[one] - scores[other])


def compare_with_vllm(workload: Workload, job: JobConfig, python: str | None, block_size: int) -> Agreement:
    """`tree` against vLLM's fan-out, both with the job's model and adapter, both reading documents causally.

    Raises:
        UsageError: no vLLM.
        ModelError: the model cannot be loaded.
    """
    if python is None:
        raise UsageError("--compare-answers needs --vllm: the answers that 'tree' is compared with")
    with plain_weights(job, workload.tokenizer) as source:
        model = loading.load_model(source, job.engine)
        steering.attach(model)
        endings = workload.endings(model)
        prepared = natural_prompts(model, workload, job.engine)
        requests = fan_out([item.layout for item in prepared], np.nonzero(endings.closing)[0].tolist())
        vllm = VllmProcess.of_model(python, source, model, {"natural": requests}, block_size)
        try:
            theirs = vllm.run("natural").answers
        finally:
            vllm.close()
        ours = tree_answers(model, prepared, endings.at_line_ends(), job.engine)

        def load_oracle() -> Any:
            oracle = loading.load_model(source, job.engine.model_copy(update={"dtype": "float32"}))
            steering.use_own_attention(oracle)
            return oracle

        return compare_answers(questions(prepared, workload), ours, theirs, load_oracle, workload.tokenizer)


@contextmanager
def plain_weights(job: JobConfig, tokenizer: Any) -> Iterator[str]:
    """A model that every engine can load: the job's, its adapter merged into the weights once for all of them."""
    if job.adapter is None:
        yield job.model
        return
    with tempfile.TemporaryDirectory(prefix="hpd-merged-") as folder:
        model = Weights.load(job.model, job.engine, job.adapter).model
        if model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
            # Tied ones part when an adapter changes one of them.
            model.config.tie_word_embeddings = False
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        yield folder


def report_agreement(comparison: Agreement) -> None:
    """Text for people, then one JSON line."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, markup=False)
    console.print(f"{comparison.num_identical:,} of {comparison.num_values:,} values are identical, token for token.")
    if comparison.differences:
        console.print("Of the others, with the margin in fp32 (above 0: it would write what 'tree' wrote):")
    for item in comparison.differences:
        margin = "one goes on" if item.margin is None else f"{item.margin:+.4f}"
        console.print(
            f"  {item.product_id}, {item.attribute}, token {item.position + 1}, margin {margin}: "
            f"{item.ours!r} against {item.theirs!r}"
        )
    print(json.dumps(dataclasses.asdict(comparison)))
