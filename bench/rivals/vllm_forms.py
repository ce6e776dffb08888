"""vLLM on documents that are answered with JSON by a schema: whole answers held to it, or a request for each field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from bench.rivals.vllm_requests import Requests
from bench.workloads.forms import Form
from bench.workloads.workload import branch_prompts
from hpd_core.decoding.prompt import Prompt
from hpd_core.task_queue import Task, TaskQueue


@contextmanager
def recorded() -> Iterator[list[list[Prompt]]]:
    """The prompts that engines get within, as they are when they are answered: those of each wave.

    A document's first prompts are of the first wave, those that it gets later of the next one.
    """
    waves: list[list[Prompt]] = []
    times_asked: Counter[tuple[int, ...]] = Counter()
    add = TaskQueue.add

    def note(queue: TaskQueue, tasks: Iterable[Task]) -> None:
        tasks = list(tasks)
        for task in tasks:
            trunk = tuple(task.prompts[0].layout.trunk.tolist())
            while len(waves) <= times_asked[trunk]:
                waves.append([])
            waves[times_asked[trunk]] += task.prompts
            times_asked[trunk] += 1
        add(queue, tasks)

    with patch.object(TaskQueue, "add", note):
        yield waves


def fan_out(wave: Sequence[Prompt]) -> Requests:
    """A request for each field of a wave, which writes as many tokens as the engine wrote there.

    What a later wave sees of earlier answers is what the engine's were, so that both have the same work.
    """
    return Requests(
        [prompt for each in wave for prompt in branch_prompts(each.layout)],
        [max(1, end.num_tokens) for each in wave for end in sorted(each.ends, key=lambda end: end.branch)],
    )


def by_schema(prompts: Sequence[list[int]], forms: Sequence[Form], most: int) -> Requests:
    """A request for each document, whose answer must fit its schema and ends by itself, or behind `most` tokens."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(form.name for form in forms))}
    schemas: dict[str, dict[str, Any]] = {form.name: form.schema for form in forms}
    return Requests(
        list(prompts),
        [most] * len(prompts),
        schemas=[schemas[name] for name in numbers],
        schema_of=[numbers[form.name] for form in forms],
    )
