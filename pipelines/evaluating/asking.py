"""Concurrent requests to a judge about every product; earlier answers come from the cache.

Cache of a judge's answers by question, so that no answer is paid twice, even after a kill or a new judgement.

A local file of JSON lines. The key is a hash of the model, the question's words and other settings that decide the
answer. The address is not part of it, because the same model may move. The judge's text is stored, not its parsed form.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console

from hpd_core.types import content_hash
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.config.loading import apply_override, parse_config
from pipelines.config.yaml_files import load_yaml
from pipelines.errors import BudgetError, RunError, UsageError
from pipelines.evaluating.judged_products import JudgedProduct
from pipelines.evaluating.questions import Class, asked_again, question, read_verdicts
from pipelines.labelling.completions import BudgetReached, ChatCompletion, well_formed
from pipelines.labelling.label_files import format_cost
from pipelines.labelling.teacher_answers import Message
from pipelines.labelling.teachers import UnansweredError
from pipelines.quality.run_answers import RowKey
from pipelines.store.isolation import open_log, whole_lines
from pipelines.store.totals import sum_of_known

if TYPE_CHECKING:
    from pipelines.labelling.openai_teacher import OpenAITeacher

_MAX_FAILURES_IN_A_ROW = 10
_LOG_SECONDS = 10.0


@dataclass(slots=True)
class JudgeUsage:
    """Requests with an answer, their tokens and dollars. None if the endpoint or the configuration does not tell."""

    requests: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    def add(self, answer: ChatCompletion, config: OpenAITeacherConfig) -> None:
        """Count one answer, at today's prices."""
        self.requests += 1
        if answer.usage is not None:
            read, written = answer.usage
            self.input_tokens, self.output_tokens = (self.input_tokens or 0) + read, (self.output_tokens or 0) + written
            self.cost_usd = sum_of_known([self.cost_usd, config.cost(read, written)])


@dataclass(frozen=True, slots=True)
class Undecided:
    """An answer that the judge put into no class when asked twice, and the reason."""

    product_id: str
    category: str
    attribute: str
    reason: str


@dataclass(slots=True)
class Judged:
    """A judge's verdicts on the products.

    Attributes:
        classes: classes by product, then attribute; None: undecided.
        undecided: undecided answers by product, in order; an empty list if all its answers have a class.
        unanswered: ids of products that could not be judged now, by reason; a rerun asks about them again.
        usage: for all answers used, each counted once even if several products share it; paid: the part of this
            session.
    """

    model: str
    classes: dict[RowKey, dict[str, Class | None]] = field(default_factory=dict)
    undecided: dict[RowKey, list[Undecided]] = field(default_factory=dict)
    unanswered: dict[str, list[str]] = field(default_factory=dict)
    usage: JudgeUsage = field(default_factory=JudgeUsage)
    paid: JudgeUsage = field(default_factory=JudgeUsage)

    @property
    def num_unanswered(self) -> int:
        """Number of products without a verdict."""
        return sum(map(len, self.unanswered.values()))


def ask_judge(
    config: OpenAITeacherConfig, products: Sequence[JudgedProduct], cache: AnswerCache, console: Console
) -> Judged:
    """Return the verdicts on all products.

    Raises:
        UsageError: the judge cannot be asked at all.
        RunError: it stopped answering; its answers so far are stored, and the same command continues.
        BudgetError: max_cost_usd is reached.
    """
    job = _Job(config, cache)
    try:
        asyncio.run(job.judge_all(products, console))
    except (UsageError, RunError) as error:
        raise type(error)(about_judge(error)) from error
    order = {product.key: number for number, product in enumerate(products)}
    job.judged.classes = dict(sorted(job.judged.classes.items(), key=lambda item: order[item[0]]))
    job.judged.undecided = dict(sorted(job.judged.undecided.items(), key=lambda item: order[item[0]]))
    return job.judged


class _Job:
    def __init__(self, config: OpenAITeacherConfig, cache: AnswerCache) -> None:
        self.judged = Judged(config.model)
        self._config, self._cache = config, cache
        self._teacher: OpenAITeacher | None = None  # while only cached answers are used
        self._counted: set[str] = set()  # keys of the answers in `usage`
        self._under_way: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by key
        self._failures = 0
        self._end: Exception | None = None

    async def judge_all(self, products: Sequence[JudgedProduct], console: Console) -> None:
        """Judge the products from cached answers, then ask about the others. Raises what ended the asking early."""
        for product in products:
            await self._judge(product)
        missing = [product for product in products if product.key not in self.judged.classes]
        if missing:
            await self._ask_about(missing, len(products), console)

    async def _judge(self, product: JudgedProduct) -> None:
        """Judge the product by the answer to the question, and to the second one if the first answer was not enough."""
        messages = first = question(product.attributes, product.fields, product.values, self._config.system)
        classes: dict[str, Class] = {}
        reasons: dict[str, str] = {}
        for attempt in range(1, self._config.answer_attempts + 1):
            answer = await self._answer(product, messages)
            if answer is None:
                return
            if answer.declined:
                reasons = dict.fromkeys(product.values, f"the judge declined: {answer.declined}")
                break
            reading = read_verdicts(answer.text, product.values)
            classes |= reading.classes
            reasons = dict(reading.problems)
            if not reading.problems or attempt == self._config.answer_attempts:
                break
            cut = f"it was cut at {self._config.max_output_tokens} tokens; " if answer.is_cut else ""
            messages = asked_again(first, answer.text, cut + reading.problem)
        self._failures = 0
        self._take(product, classes, reasons)

    async def _answer(self, product: JudgedProduct, messages: list[Message]) -> ChatCompletion | None:
        """Return the answer, cached or asked for, and count it once; None if there is none now."""
        key = question_key(self._config, messages)
        # Products of one text and the same answers have one question: whoever comes second waits for its answer.
        async with self._under_way[key]:
            answer = self._cache.get(key)
            if answer is None and self._teacher is not None and self._end is None:
                answer = await self._ask(self._teacher, product, messages)
        if answer is not None and key not in self._counted:
            self._counted.add(key)
            self.judged.usage.add(answer, self._config)
        return answer

    def _take(self, product: JudgedProduct, classes: dict[str, Class], reasons: dict[str, str]) -> None:
        self.judged.classes[product.key] = {name: classes.get(name) for name in product.values}
        self.judged.undecided[product.key] = [
            Undecided(product.product_id, product.category, name, reasons.get(name, "has no class"))
            for name in product.values
            if name not in classes
        ]

    async def _ask_about(self, products: Sequence[JudgedProduct], num_products: int, console: Console) -> None:
        try:
            from pipelines.labelling.openai_teacher import OpenAITeacher
        except ImportError as error:
            raise UsageError(f'a judge needs a package: pip install "openai>=3" ({error})') from error
        spent = self.judged.usage.cost_usd or 0.0
        self._teacher = OpenAITeacher(self._config, {}, require_evidence=False, spent=spent)
        waiting = iter(products)

        async def work() -> None:
            for product in waiting:
                if self._end is not None:
                    return
                await self._judge(product)

        async with self._teacher:
            show = asyncio.create_task(self._keep_telling(num_products, console))
            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(self._config.max_concurrency):
                        workers.create_task(work())
            except BaseExceptionGroup as group:
                raise group.exceptions[0] from None
            finally:
                show.cancel()
        if self._end is not None:
            raise self._end

    async def _ask(
        self, teacher: OpenAITeacher, product: JudgedProduct, messages: list[Message]
    ) -> ChatCompletion | None:
        """Ask, cache the answer at once, and return it; None if there is none."""
        try:
            found = await teacher.ask(messages)
            answer = replace(found, text=well_formed(found.text), declined=well_formed(found.declined))
        except UnansweredError as error:
            if error.reason != "declined":
                self._leave(product, error.reason, error)
                return None
            answer = ChatCompletion(declined=str(error))
        except BudgetReached as end:
            self._stop(BudgetError(f"judge.max_cost_usd: {end}"))
            return None
        except (RunError, UsageError) as end:
            self._stop(end)
            return None
        self.judged.paid.add(answer, self._config)
        self._cache.add(self._config, messages, answer)
        return answer

    def _leave(self, product: JudgedProduct, reason: str, error: Exception) -> None:
        self.judged.unanswered.setdefault(reason, []).append(product.product_id)
        self._failures += 1
        if self._failures >= _MAX_FAILURES_IN_A_ROW:
            self._stop(RunError(f"{self._failures} products in a row got no answer, the last one: {error}"))

    def _stop(self, end: Exception) -> None:
        """Stop asking; requests in progress still finish, because they are paid."""
        self._end = self._end or end

    async def _keep_telling(self, num_products: int, console: Console) -> None:
        while True:
            await asyncio.sleep(_LOG_SECONDS)
            cost = f", {format_cost(self.judged.usage.cost_usd)}" if self.judged.usage.cost_usd is not None else ""
            done, left = len(self.judged.classes), self.judged.num_unanswered
            without = f", {left:,} without an answer" if left else ""
            console.print(f"{self._config.model}: {done:,} of {num_products:,} products judged{without}{cost}")


# It explains every attribute before it judges it.
_MAX_OUTPUT_TOKENS = 4096
_FIXED = {
    "kind": "a judge is always behind an OpenAI-compatible endpoint",
    "instruction": "a judge is asked in the paper's words",
    "json_mode": "a judge answers in words",
}
_TEACHER = re.compile(r"\bteacher\.")


def judge_config(place: str, changes: Sequence[str], option: str) -> OpenAITeacherConfig:
    """Return the judge at `place`: an endpoint's address, or a YAML file with the keys.

    Args:
        changes: `key=value`, instead of the file's.
        option: the option that named the place, for messages.

    Raises `UsageError`.
    """
    if place.startswith(("http://", "https://")):
        document: Any = {"base_url": place}
    else:
        document = load_yaml(place)
        if not isinstance(document, dict):
            raise UsageError(f"{place}: a mapping of keys is needed (base_url, model, ...)")
    for change in changes:
        apply_override(document, change, f"{option}-set")
    if fixed := [key for key in _FIXED if key in document]:
        raise UsageError(f"{option}: {fixed[0]!r} is no key of a judge: {_FIXED[fixed[0]]}")
    keys = {"kind": "openai", "json_mode": "off", "max_output_tokens": _MAX_OUTPUT_TOKENS, **document}
    return parse_config(OpenAITeacherConfig, keys, f"{option} {place}")


def about_judge(error: Exception) -> str:
    """Rewrite a message of the client, which calls the judge a teacher."""
    return _TEACHER.sub("judge.", str(error))


_DECIDES = ("model", "temperature", "max_output_tokens", "request")


class AnswerCache:
    """Cache file for one process at a time."""

    def __init__(self, path: str) -> None:
        """Open the file. Raises `UsageError` if it is unusable, another process uses it, or it is not one of ours."""
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_log(self.path)
        except OSError as error:
            raise UsageError(f"--judge-cache: cannot write {path}: {error.strerror}") from error
        self._answers: dict[str, ChatCompletion] = {}
        try:
            for number, line in enumerate(whole_lines(self._file), start=1):
                self._load(line, number)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def get(self, key: str) -> ChatCompletion | None:
        """Return the answer to the question with this key, or None."""
        return self._answers.get(key)

    def add(self, config: OpenAITeacherConfig, messages: Sequence[Message], answer: ChatCompletion) -> None:
        """Write an answer at once."""
        key = question_key(config, messages)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        read, written = answer.usage or (None, None)
        line = {
            **{"key": key, "model": config.model, "time": now},
            **{"text": answer.text, "declined": answer.declined, "is_cut": answer.is_cut},
            **{"input_tokens": read, "output_tokens": written},
        }
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        self._answers[key] = answer

    def _load(self, line: bytes, number: int) -> None:
        try:
            read: Mapping[str, Any] = json.loads(line)
            tokens = read["input_tokens"], read["output_tokens"]
            known = read["text"], read["declined"], read["is_cut"]
            self._answers[read["key"]] = ChatCompletion(*known, None if None in tokens else tokens)
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{self.path}, line {number}: no judge's answer; name another file with --judge-cache, or remove the "
                "line to have its question asked again"
            ) from error


def question_key(config: OpenAITeacherConfig, messages: Sequence[Message]) -> str:
    """Hash a question; equal for two questions that have the same answer."""
    return content_hash([*(getattr(config, name) for name in _DECIDES), list(messages)])
