"""Waves of questions: every document proceeds by itself as soon as its own values are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from threading import Lock
from typing import Any

from hpd_core.errors import PromptError
from hpd_core.json_schema.answers import JsonFuture, JsonResult, Problem, checker
from hpd_core.json_schema.form import Node
from hpd_core.json_schema.questions import Assembly, FormQuestion, Questions
from hpd_core.requests.calls import CompletionFuture, Trunk, TrunkCompletions
from hpd_core.requests.results import Completions
from hpd_core.text.template import Frame


def submit_json(
    completions: Completions,
    documents: Sequence[str],
    schema: Mapping[str, Any],
    form: Node,
    frame: Frame,
) -> JsonFuture:
    """Submit documents as `Engine.submit_json`, with the form of the schema and the texts around a document."""
    run = _Run(completions, [_Document(text, form, frame) for text in documents], checker(schema))
    run.start()
    return run.future


class _Document:
    """Document that is being decoded."""

    def __init__(self, text: str, form: Node, frame: Frame) -> None:
        self._form = form
        self.trunk = Trunk(frame[0], text, frame[1])
        self.questions = Questions(form)
        self.asked: list[FormQuestion] = self.questions.next_wave()
        self._num_prompt_tokens = self._num_output_tokens = 0
        self._error: str | None = None

    def take(self, found: TrunkCompletions) -> None:
        """Take the answers of a wave, and find the next one."""
        if found.error is not None:
            self._error, self.asked = found.error, []
            return
        # The trunk counts once.
        self._num_prompt_tokens += found.num_prompt_tokens - (found.num_trunk_tokens if self._num_prompt_tokens else 0)
        try:
            for question, completion in zip(self.asked, found.branches, strict=True):
                self._num_output_tokens += completion.num_tokens
                self.questions.take(question, completion)
        except PromptError as error:
            self._error, self.asked = str(error), []
            return
        self.asked = self.questions.next_wave()

    def result(self, problems_of: Callable[[Any], list[Problem]]) -> JsonResult:
        """Return the result, when nothing is left to ask."""
        if self._error is not None:
            return JsonResult(None, (Problem("", self._error),))
        answers = self.questions.answers
        data = Assembly(answers, self.questions.lengths).of(self._form)
        problems = dict.fromkeys([*self.questions.problems, *problems_of(data)])
        fields = {answer.path: answer for answer in answers.values()}
        return JsonResult(data, tuple(problems), fields, self._num_prompt_tokens, self._num_output_tokens)


class _Run:
    """Documents of one call."""

    def __init__(
        self,
        completions: Completions,
        documents: Sequence[_Document],
        problems_of: Callable[[Any], list[Problem]],
    ) -> None:
        self.future = JsonFuture(self._abandon)
        self._completions, self._documents = completions, documents
        self._problems_of = problems_of
        self._results: dict[int, JsonResult] = {}
        self._asked: dict[int, CompletionFuture] = {}
        self._lock = Lock()

    def start(self) -> None:
        """Ask for all first waves at once."""
        if not self._documents:
            self.future.settle([])
        # Before others are asked: those may be answered meanwhile, and have nothing left to ask.
        known = [number for number, document in enumerate(self._documents) if not document.asked]
        self._ask([number for number, document in enumerate(self._documents) if document.asked])
        for number in known:
            self._finish(number)

    def _ask(self, numbers: Sequence[int]) -> None:
        calls = [
            ([document.trunk], [[question.branch for question in document.asked]])
            for document in map(self._documents.__getitem__, numbers)
        ]
        futures = self._completions.submit(calls, self)
        with self._lock:
            self._asked.update(zip(numbers, futures, strict=True))
        for number, future in zip(numbers, futures, strict=True):
            if self.future.done():
                future.abandon()
            future.add_done_callback(partial(self._go_on, number))

    def _abandon(self) -> None:
        self.future.settle(error=CancelledError())
        with self._lock:
            asked = list(self._asked.values())
        for future in asked:
            future.abandon()

    def _go_on(self, number: int, future: CompletionFuture) -> None:
        """Ask for the next wave of a document, or finish it."""
        try:
            (found,) = future.result()
            document = self._documents[number]
            document.take(found)
            if document.asked:
                self._ask([number])
            else:
                self._finish(number)
        except CancelledError:
            return
        except Exception as error:
            self.future.settle(error=error)

    def _finish(self, number: int) -> None:
        result = self._documents[number].result(self._problems_of)
        with self._lock:
            self._results[number] = result
            is_last = len(self._results) == len(self._documents)
        if is_last:
            self.future.settle([self._results[each] for each in range(len(self._documents))])
