"""A teacher at an OpenAI-compatible endpoint, asked by the `openai` package, which retries what says nothing about it.

A failure is one of three kinds. It ends the run (no such model, no money). Or it says nothing about the product (a
timeout, 429, 5xx: asked again by a rerun). Or it is about the product (text too long, useless answer).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import openai

from hpd_core import CategorySchema, Record
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.errors import RunError, UsageError
from pipelines.labelling.completions import (
    DECLINED,
    INSIDE,
    Budget,
    BudgetReached,
    ChatCompletion,
    PacedClient,
    error_words,
    well_formed,
)
from pipelines.labelling.final_answer import USELESS, read_answer
from pipelines.labelling.teacher_answers import (
    MODES,
    Message,
    answer_shape,
    asked_again,
    judge,
    product_messages,
    prompt_hash,
    split_lists,
)
from pipelines.labelling.teachers import TeacherVerdict, UnansweredError, Usage

_MAX_SHOWN_MESSAGE = 300
_MESSAGE_TOKENS = 16  # what a chat template adds to a message, with room to spare
# What an endpoint names that refuses how an answer is asked for.
_FORM = re.compile(
    r"(?:response|json)[_ ]?(?:format|schema)|structured[_ ]?output|function[_ ]?call|grammar|additionalProperties"
    r"|tool_choice|\btools?\b.{0,30}(?:support|avail|allow)",
    re.IGNORECASE,
)


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
        self._config, self._schemas, self._require_evidence = config, schemas, require_evidence
        self._key = _api_key(config)
        self._mode = MODES[0] if config.json_mode == "auto" else config.json_mode
        self._has_answered = False
        self._budget = Budget(config.max_cost_usd, spent)
        self._http = PacedClient(config.timeout_seconds, config.requests_per_minute, self.faults)
        self._client = openai.AsyncOpenAI(
            api_key=self._key, base_url=config.base_url, max_retries=config.max_retries, http_client=self._http
        )

    async def __aenter__(self) -> Self:
        """Request the list of models, which costs nothing. Endpoints without such a list are accepted."""
        config = self._config
        failed: RunError | UsageError | None = None
        try:
            await self._client.with_options(max_retries=0).models.with_raw_response.list()
        except openai.APITimeoutError:
            failed = UsageError(
                f"{config.base_url} does not answer within {config.timeout_seconds:g} s; nothing was asked"
            )
        except openai.APIConnectionError as error:
            cause = self._shorten(str(error.__cause__ or error))
            failed = UsageError(f"cannot reach {config.base_url}: {cause}; is the server running?")
        except openai.AuthenticationError as error:
            failed = self._ending(error)
        except (openai.OpenAIError, ValueError):
            pass
        if failed is not None:
            await self._client.close()
            raise failed
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
        """Ask a question that is not about a product's labels: the answer is in words, and free.

        Raises `UnansweredError` if this question has no answer, `RunError` or `UsageError` if no later one can have
        any, `BudgetReached` if no money is left.
        """
        try:
            return (await self._ask(messages, None))[0]
        except UnansweredError as error:
            raise UnansweredError(f"{self._config.base_url}: {error.reason}: {error}", error.reason) from error

    async def _label(self, record: Record) -> TeacherVerdict:
        """Ask until an answer is usable, at most `answer_attempts` times."""
        schema = self._schemas[record.category]
        question = messages = product_messages(self._config, schema, record)
        verdict = TeacherVerdict(None, Usage(), 0)
        for attempt in range(1, self._config.answer_attempts + 1):
            try:
                completion, usage = await self._ask(messages, schema)
            except UnansweredError as failure:
                # What was read before stays with the product: it may say why.
                is_answered = attempt > 1 or failure.reason == "declined"
                return replace(
                    verdict,
                    attempts=attempt,
                    reason=failure.reason,
                    message=str(failure),
                    is_answered=is_answered,
                )
            except (BudgetReached, RunError, UsageError) as end:
                if attempt == 1:
                    raise
                # The first answer is paid: the verdict carries what it cost, and that the run ends here.
                reason = "no_budget" if isinstance(end, BudgetReached) else "teacher_ended"
                return replace(verdict, reason=reason, message=str(end))
            read = self._read(schema, record, completion)
            verdict = replace(read, usage=verdict.usage + usage, attempts=attempt)
            if verdict.labels is not None or completion.declined:
                break
            messages = asked_again(question, verdict.raw, verdict.message)
        return verdict

    def _read(self, schema: CategorySchema, record: Record, completion: ChatCompletion) -> TeacherVerdict:
        """Return the labels in an answer, or why it has none."""
        raw, limit = well_formed(completion.text), self._config.max_output_tokens
        cut = f"it was cut at teacher.max_output_tokens: {limit} and holds no complete JSON object"
        if completion.declined:
            told = well_formed(completion.declined)
            return TeacherVerdict(None, Usage(), 1, "declined", "the teacher declined to answer", told)
        try:
            answer = read_answer(schema, completion.text, record.fields, is_cut=completion.is_cut)
            if isinstance(answer, str):
                is_cut = completion.is_cut and answer not in ("several", "template")
                return TeacherVerdict(None, Usage(), 1, *(("cut_off", cut) if is_cut else USELESS[answer]), raw)
            values, list_problems = split_lists(schema, answer.values, record.fields)
            labels = judge(schema, values, record.fields, require_evidence=self._require_evidence)
        except Exception as error:
            # Whatever one answer can do, it is one product's trouble and not the run's.
            return TeacherVerdict(None, Usage(), 1, "not_json", f"it cannot be read ({type(error).__name__})", raw)
        problems = answer.problems + list_problems + labels.problems
        if labels.values:
            return TeacherVerdict(labels, Usage(), problems=problems)
        message = "its JSON object has no usable value for any attribute"
        return TeacherVerdict(None, Usage(), 1, "no_labels", message, raw, problems)

    async def _ask(self, messages: list[Message], schema: CategorySchema | None) -> tuple[ChatCompletion, Usage]:
        """Return the completion and its cost. Raises as `ask`, and `RunError` if a limited cost is unknown."""
        config = self._config
        most_input = sum(len(message["content"].encode()) + _MESSAGE_TOKENS for message in messages)
        async with self._budget.reserve(config.cost(most_input, config.max_output_tokens) or 0.0):
            completion = await self._send(messages, schema)
            self._has_answered = True
            usage = Usage() if completion.usage is None else Usage(*completion.usage, config.cost(*completion.usage))
            if usage.cost_usd is None and config.max_cost_usd is not None:
                raise self._end_with(
                    RunError(
                        f"{config.base_url} does not say how many tokens an answer took, so that max_cost_usd cannot "
                        "be held; leave it out to go on"
                    )
                )
            self._budget.spend(usage.cost_usd or 0.0)
        return completion, usage

    async def _send(self, messages: list[Message], schema: CategorySchema | None) -> ChatCompletion:
        config, mode = self._config, self._mode
        request: dict[str, Any] = {"model": config.model, "messages": messages}
        request[config.token_limit_key] = config.max_output_tokens
        if config.temperature is not None:
            request["temperature"] = config.temperature
        if schema is not None:
            request |= answer_shape(mode, schema)
        try:
            raw = await self._client.chat.completions.with_raw_response.create(**request, extra_body=config.request)
            completion: ChatCompletion = raw.http_response.extensions["completion"]
            return completion
        except openai.APITimeoutError as error:
            raise UnansweredError(f"no answer within {config.timeout_seconds:g} s", "timeout") from error
        except openai.APIConnectionError as error:
            raise UnansweredError(self._shorten(str(error.__cause__ or error)), "unreachable") from error
        except openai.APIStatusError as error:
            is_refused = schema is not None and error.status_code in (400, 404, 422, 501)
            if is_refused and config.json_mode == "auto" and mode != MODES[-1] and _FORM.search(error.response.text):
                self._mode = MODES[MODES.index(mode) + 1]
                return await self._send(messages, schema)
            raise self._failure(error) from error

    def _failure(self, error: openai.APIStatusError) -> UnansweredError | RunError | UsageError:
        """Return the failure that an error is; one that ends the run, if it does."""
        status, message = error.status_code, self._told(error)
        if (status in (400, 403) or INSIDE in error.response.extensions) and DECLINED.search(error.response.text):
            return UnansweredError(message, "declined")
        if status < 400 or status in (401, 402, 404) or (status == 403 and not self._has_answered):
            return self._end_with(self._ending(error))
        if status == 429 and error.code == "insufficient_quota":
            return self._end_with(RunError(f"{self._config.base_url}: no quota is left: {message}"))
        reason = "rate_limited" if status == 429 else "server_error" if status >= 500 or status in (408, 409) else ""
        return UnansweredError(message, reason or "refused")

    def _end_with(self, error: RunError | UsageError) -> RunError | UsageError:
        """End the run with the first error given. Requests in progress finish; no new one starts."""
        first = self._http.end(error)
        assert isinstance(first, RunError | UsageError)
        return first

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
        status = f"an error {INSIDE}" if INSIDE in error.response.extensions else f"HTTP {error.status_code}"
        return self._shorten(f"{status}: {words}" if words else status)

    def _shorten(self, message: str) -> str:
        # Some endpoints repeat the key they were sent.
        text = " ".join(well_formed(message).replace(self._key, "***").split())
        return text if len(text) <= _MAX_SHOWN_MESSAGE else text[:_MAX_SHOWN_MESSAGE] + "..."


def _api_key(config: OpenAITeacherConfig) -> str:
    if config.api_key_env is None:
        return "no-key"  # the package wants one; servers without accounts do not read it
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        raise UsageError(f"teacher.api_key_env: the environment variable {config.api_key_env} is not set")
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"teacher.api_key_env: {config.api_key_env} holds characters that no key has")
    return key
