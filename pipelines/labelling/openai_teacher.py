"""A teacher at an OpenAI-compatible endpoint, asked by the `openai` package.

A failure is one of three kinds. It ends the run (no such model, no money). Or it says nothing about the product (a
timeout: retried, and asked again by a rerun). Or it is about the product (text too long, useless answer). An error in
the body of an answer with status 200 counts as one of its code.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

import openai
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from hpd_core import CategorySchema, Record
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.errors import RunError, UsageError
from pipelines.labelling.completions import (
    BodyError,
    Budget,
    BudgetReached,
    ChatCompletion,
    Pace,
    error_words,
    read_completion,
    well_formed,
)
from pipelines.labelling.final_answer import NoAnswer, read_answer
from pipelines.labelling.teacher_answers import (
    MODES,
    Labels,
    Message,
    answer_shape,
    asked_again,
    judge,
    product_messages,
    prompt_hash,
    split_lists,
)
from pipelines.labelling.teachers import TeacherVerdict, UnansweredError, Usage
from pipelines.labelling.under_way import UnderWay

_MAX_SHOWN_MESSAGE = 300
_MAX_BACKOFF_SECONDS, _MAX_RETRY_AFTER_SECONDS = 8.0, 60.0
_MESSAGE_TOKENS = 16  # what a chat template adds to a message, with room to spare
# What an endpoint names that refuses how an answer is asked for.
_FORM = re.compile(
    r"(?:response|json)[_ ]?(?:format|schema)|structured[_ ]?output|function[_ ]?call|grammar|additionalProperties"
    r"|tool_choice|\btools?\b.{0,30}(?:support|avail|allow)",
    re.IGNORECASE,
)
_DECLINED = re.compile(r"content[_ ]?(?:filter|policy)|moderat|flagged|filtered", re.IGNORECASE)


class _Failure(Exception):  # noqa: N818 - becomes a verdict, never a message of its own
    """Raised if a request brought no answer.

    Attributes:
        retry_after: seconds after which it may be tried again; None if that is useless.
    """

    def __init__(self, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason, self.retry_after = reason, retry_after


class _Useless(NamedTuple):
    """Reason and message of a useless answer; the message is for people and for the teacher."""

    reason: str
    message: str


class OpenAITeacher:
    """Teacher that labels one product per request."""

    batch_size = 1

    def __init__(
        self,
        config: OpenAITeacherConfig,
        schemas: Mapping[str, CategorySchema],
        *,
        require_evidence: bool,
        spent: float = 0.0,
    ) -> None:
        """Prepare the client without connecting; `spent`: dollars of earlier sessions.

        Raises `UsageError` if the key is not in the environment.
        """
        self.num_workers = config.max_concurrency
        self.faults: Counter[str] = Counter()
        self.under_way = UnderWay()
        self._config, self._schemas, self._require_evidence = config, schemas, require_evidence
        self._key = _api_key(config)
        self._mode = MODES[0] if config.json_mode == "auto" else config.json_mode
        self._has_answered = False
        self._end: RunError | UsageError | None = None
        self._pace, self._budget = Pace(config.requests_per_minute), Budget(config.max_cost_usd, spent)
        # A redirect would lose the question: it leads to a page to sign in, or to another address.
        client = DefaultAsyncHttpxClient(follow_redirects=False)
        self._client = AsyncOpenAI(api_key=self._key, base_url=config.base_url, max_retries=0, http_client=client)

    async def __aenter__(self) -> Self:
        """Request the list of models, which costs nothing. Endpoints without such a list are accepted."""
        config = self._config
        try:
            async with asyncio.timeout(config.timeout_seconds):
                await self._client.models.with_raw_response.list()
        except (openai.APITimeoutError, TimeoutError) as error:
            await self._client.close()
            raise UsageError(
                f"{config.base_url} does not answer within {config.timeout_seconds:g} s; nothing was asked"
            ) from error
        except openai.APIConnectionError as error:
            await self._client.close()
            cause = self._shorten(str(error.__cause__ or error))
            raise UsageError(f"cannot reach {config.base_url}: {cause}; is the server running?") from error
        except openai.AuthenticationError as error:
            await self._client.close()
            raise self._ending(error) from error
        except (openai.OpenAIError, ValueError):
            pass
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    def provenance(self, category: str) -> dict[str, Any]:
        """Return the provenance of labels. See `Teacher.provenance`."""
        return {
            "teacher": self._config.model,
            "kind": self._config.kind,
            "base_url": self._config.base_url,
            "prompt_hash": prompt_hash(self._config),
            "schema_hash": self._schemas[category].hash,
        }

    async def label(self, records: Sequence[Record]) -> list[TeacherVerdict]:
        """Label records, concurrently if called so. Raises `BudgetReached` if no money is left. See `Teacher.label`."""
        return [await self._label(record) for record in records]

    async def ask(self, messages: list[Message]) -> ChatCompletion:
        """Ask a question that is not about a product's labels, as with `json_mode` "off": the answer is in words.

        Raises `UnansweredError` if this question has no answer, `RunError` or `UsageError` if no later one can have
        any, `BudgetReached` if no money is left.
        """
        try:
            return await self._ask(messages, None, _Tally(self._config))
        except _Failure as failure:
            message = f"{self._config.base_url}: {failure.reason}: {failure}"
            raise UnansweredError(message, failure.reason) from failure

    async def _label(self, record: Record) -> TeacherVerdict:
        """Ask until an answer is usable, at most `answer_attempts` times."""
        schema = self._schemas[record.category]
        question = messages = product_messages(self._config, schema, record)
        tally, problems = _Tally(self._config), Counter[str]()
        reason, message, raw, attempts = "no_completion", "", "", 0
        for attempt in range(1, self._config.answer_attempts + 1):
            try:
                completion = await self._ask(messages, schema, tally)
            except (BudgetReached, RunError, UsageError) as end:
                if attempt == 1:
                    raise
                # The first answer is paid: the verdict carries what it cost, and that the run ends here.
                reason = "no_budget" if isinstance(end, BudgetReached) else "teacher_ended"
                return TeacherVerdict(None, tally.usage, attempts, reason, str(end), raw, problems)
            except _Failure as failure:
                # What was read before stays with the product: it may say why.
                is_answered = attempts > 0 or failure.reason == "declined"
                return TeacherVerdict(
                    None, tally.usage, attempt, failure.reason, str(failure), raw, problems, is_answered=is_answered
                )
            attempts = attempt
            raw = well_formed(completion.text if completion.text.strip() else completion.reasoning)
            if completion.declined:
                declined = well_formed(completion.declined)
                return TeacherVerdict(
                    None, tally.usage, attempts, "declined", "the teacher declined to answer", declined
                )
            labels, problems, useless = self._read(schema, record, completion)
            if useless is None:
                return TeacherVerdict(labels, tally.usage, attempts, problems=problems)
            reason, message = useless
            messages = asked_again(question, well_formed(completion.text), message)
        return TeacherVerdict(None, tally.usage, attempts, reason, message, raw, problems)

    def _read(
        self, schema: CategorySchema, record: Record, completion: ChatCompletion
    ) -> tuple[Labels | None, Counter[str], _Useless | None]:
        """Return labels, counts of problems, and why the answer is useless, if it is."""
        limit = self._config.max_output_tokens
        try:
            answer = read_answer(schema, completion.text, record.fields, is_cut=completion.is_cut)
            if isinstance(answer, str):
                return None, Counter(), _no_answer(answer, completion, limit)
            values, list_problems = split_lists(schema, answer.values, record.fields)
            labels = judge(schema, values, record.fields, require_evidence=self._require_evidence)
        except Exception as error:
            # Whatever one answer can do, it is one product's trouble and not the run's.
            return None, Counter(), _Useless("not_json", f"it cannot be read ({type(error).__name__})")
        problems = answer.problems + list_problems + labels.problems
        if labels.values:
            return labels, problems, None
        return None, problems, _Useless("no_labels", "its JSON object has no usable value for any attribute")

    async def _ask(self, messages: list[Message], schema: CategorySchema | None, tally: _Tally) -> ChatCompletion:
        """Return the completion, with its cost counted. Raises `RunError` if a limited cost is unknown."""
        config = self._config
        most_input = sum(len(message["content"].encode()) + _MESSAGE_TOKENS for message in messages)
        async with self._budget.reserve(config.cost(most_input, config.max_output_tokens) or 0.0):
            completion = await self._send(messages, schema)
            self._has_answered = True
            cost = tally.add(completion.usage)
            if cost is None and config.max_cost_usd is not None:
                raise self._end_with(
                    RunError(
                        f"{config.base_url} does not say how many tokens an answer took, so that max_cost_usd cannot "
                        "be held; leave it out to go on"
                    )
                )
            self._budget.spend(cost or 0.0)
        return completion

    async def _send(self, messages: list[Message], schema: CategorySchema | None) -> ChatCompletion:
        config, mode = self._config, self._mode
        request: dict[str, Any] = {"model": config.model, "messages": messages}
        request[config.token_limit_key] = config.max_output_tokens
        if config.temperature is not None:
            request["temperature"] = config.temperature
        if schema is not None:
            request |= answer_shape(mode, schema)
        with self.under_way.question() as question:
            for num_tries in range(config.max_retries + 1):
                if not await self._pace.wait():
                    assert self._end is not None
                    raise self._end
                question.sent()
                try:
                    return await self._try(request)
                except openai.APIStatusError as error:
                    is_refused = schema is not None and error.status_code in (400, 404, 422, 501)
                    if is_refused and config.json_mode == "auto" and mode != MODES[-1] and _FORM.search(_body(error)):
                        self._mode = MODES[MODES.index(mode) + 1]
                        break
                    failure = self._failure(error)
                except _Failure as error:
                    failure = error
                if failure.retry_after is None or num_tries == config.max_retries:
                    raise failure
                backoff = min(_MAX_BACKOFF_SECONDS, 0.5 * 2**num_tries) * random.uniform(0.75, 1.0)
                await asyncio.sleep(failure.retry_after or backoff)
        return await self._send(messages, schema)

    async def _try(self, request: dict[str, Any]) -> ChatCompletion:
        """Send the request once. The deadline is for the whole answer: a trickle of bytes must not outlive it."""
        config = self._config
        try:
            async with asyncio.timeout(config.timeout_seconds):
                raw = await self._client.chat.completions.with_raw_response.create(**request, extra_body=config.request)
            return read_completion(raw.http_response.content)
        except (openai.APITimeoutError, TimeoutError) as error:
            raise _Failure("timeout", f"no answer within {config.timeout_seconds:g} s", 0.0) from error
        except openai.APIConnectionError as error:
            raise _Failure("unreachable", self._shorten(str(error.__cause__ or error)), 0.0) from error
        except BodyError as error:
            message = self._shorten(f"HTTP 200, but {error}")
            if _DECLINED.search(message):
                raise _Failure("declined", message) from error
            self.faults[f"{error.status} inside of a 200"] += 1
            raise _Failure("rate_limited" if error.status == 429 else "server_error", message, 0.0) from error
        except openai.APIStatusError:
            raise
        except (openai.OpenAIError, ValueError) as error:  # a body that the package cannot decode
            raise _Failure("server_error", self._shorten(f"the answer cannot be read: {error}"), 0.0) from error

    def _failure(self, error: openai.APIStatusError) -> _Failure:
        """Return the failure that an error is. Raises `RunError` or `UsageError` for one that ends the run."""
        status, message = error.status_code, self._told(error)
        self.faults[str(status)] += 1
        if status in (400, 403) and _DECLINED.search(_body(error)):
            return _Failure("declined", message)
        if status < 400 or status in (401, 402, 404) or (status == 403 and not self._has_answered):
            raise self._end_with(self._ending(error)) from error
        retry_after = 0.0
        with suppress(ValueError):
            retry_after = float(error.response.headers.get("retry-after", 0))
        if not 0 <= retry_after <= _MAX_RETRY_AFTER_SECONDS:
            retry_after = 0.0
        if status == 429:
            if error.code == "insufficient_quota":
                no_quota = RunError(f"{self._config.base_url}: no quota is left: {message}")
                raise self._end_with(no_quota) from error
            return _Failure("rate_limited", message, retry_after)
        if status >= 500 or status in (408, 409):
            return _Failure("server_error", message, retry_after)
        return _Failure("refused", message)

    def _end_with(self, error: RunError | UsageError) -> RunError | UsageError:
        """End the run with the first error given. Requests in progress finish; no new one starts."""
        self._end = self._end or error
        self._pace.end()
        return self._end

    def _ending(self, error: openai.APIStatusError) -> RunError | UsageError:
        """Return the error that ends the run: `UsageError` (configuration) before the first answer, else `RunError`."""
        config, status = self._config, error.status_code
        name = config.api_key_env
        advice = {
            401: f"check the key in {name}" if name else "name the variable with the key in teacher.api_key_env",
            404: f"check teacher.base_url and teacher.model ({config.model!r})",
        }.get(status, "check teacher.base_url" if status < 400 else "check the account")
        message = f"{config.base_url} answers {self._told(error)}; {advice}"
        return RunError(message) if self._has_answered else UsageError(message)

    def _told(self, error: openai.APIStatusError) -> str:
        words = error_words(error.body) if error.body else error.response.headers.get("location", "")
        return self._shorten(f"HTTP {error.status_code}: {words}" if words else f"HTTP {error.status_code}")

    def _shorten(self, message: str) -> str:
        # Some endpoints repeat the key they were sent.
        text = " ".join(well_formed(message).replace(self._key, "***").split())
        return text if len(text) <= _MAX_SHOWN_MESSAGE else text[:_MAX_SHOWN_MESSAGE] + "..."


class _Tally:
    """Tokens and dollars of one product."""

    def __init__(self, config: OpenAITeacherConfig) -> None:
        self._config = config
        self.usage = Usage()

    def add(self, usage: tuple[int, int] | None) -> float | None:
        """Add the tokens of one answer. Returns its cost, or None if unknown."""
        if usage is None:
            return None
        read, written = usage
        cost, before = self._config.cost(read, written), self.usage
        self.usage = Usage(
            (before.input_tokens or 0) + read,
            (before.output_tokens or 0) + written,
            None if cost is None else (before.cost_usd or 0.0) + cost,
        )
        return cost


def _body(error: openai.APIStatusError) -> str:
    return error.response.content.decode(errors="replace")


def _api_key(config: OpenAITeacherConfig) -> str:
    if config.api_key_env is None:
        return "no-key"  # the package wants one; servers without accounts do not read it
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        raise UsageError(f"teacher.api_key_env: the environment variable {config.api_key_env} is not set")
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"teacher.api_key_env: {config.api_key_env} holds characters that no key has")
    return key


def _no_answer(why: NoAnswer, completion: ChatCompletion, limit: int) -> _Useless:
    """Return why a text without an answer is useless."""
    cut = f"teacher.max_output_tokens: {limit}"
    tool = f"it calls the tool {completion.tools[0]!r} without the attributes" if completion.tools else ""
    if not completion.text.strip() or why == "thinking":
        if completion.is_cut:
            return _Useless("cut_off", f"its thoughts took all of {cut}, and it did not come to its answer")
        if why == "thinking":
            return _Useless("not_json", "its thoughts have no end, and no answer behind them")
        thought = "it has thoughts, but no answer" if completion.reasoning.strip() else ""
        return _Useless("no_completion", tool or thought or "it is empty")
    if why == "too_long":
        return _Useless("not_json", f"it has {len(completion.text):,} characters, too many for an answer")
    if why == "several":
        return _Useless("several_answers", "it holds JSON objects that differ")
    if why == "words" and not completion.is_cut:
        return _Useless("several_answers", "words stand after its JSON object, which may take it back")
    if completion.is_cut:
        return _Useless("cut_off", f"it was cut at {cut} and holds no complete JSON object")
    if why == "template":
        return _Useless("not_json", "its JSON object only shows the form of an answer")
    return _Useless("not_json", tool or "it holds no complete JSON object")
