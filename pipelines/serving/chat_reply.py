"""Replies of `POST /v1/chat/completions`: a completion, or its chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import FieldAnswer, JsonResult
from pipelines.serving.api_errors import ApiError
from pipelines.serving.field_facts import answer_facts, field_facts, is_cut, json_text
from pipelines.serving.question import ServedQuestion
from pipelines.serving.reply import event, new_id, now


class ChatReply:
    """The reply to one question. Implements `reply.Reply`."""

    def __init__(self, question: ServedQuestion, model: str) -> None:
        self._question = question
        self._call_id = new_id("call_")
        self._head = {"id": new_id("chatcmpl-"), "created": now(), "model": model}

    def whole(self, result: JsonResult) -> dict[str, Any]:
        """Return the whole completion. See `Reply.whole`."""
        text = json_text(result)
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        message |= {"tool_calls": [self._call(text)]} if self._question.as_call else {"content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason(result)}
        return self._head | {
            "object": "chat.completion",
            "choices": [choice],
            "usage": _usage(result),
            "hpd": answer_facts(result),
        }

    def begin(self) -> Iterator[bytes]:
        """Yield the first chunk. See `Reply.begin`."""
        delta: dict[str, Any] = {"role": "assistant", "content": None if self._question.as_call else ""}
        if self._question.as_call:
            delta["tool_calls"] = [{"index": 0, **self._call("")}]
        yield self._chunk(delta)

    def go_on(self, text: str, fields: Sequence[FieldAnswer]) -> Iterator[bytes]:
        """Yield the chunk of a new piece. See `Reply.go_on`."""
        delta: dict[str, Any] = {}
        if text and self._question.as_call:
            delta = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        elif text:
            delta = {"content": text}
        if delta or fields:
            yield self._chunk(delta, hpd={"fields": field_facts(fields)} if fields else None)

    def end(self, result: JsonResult) -> Iterator[bytes]:
        """Yield the last chunks. See `Reply.end`."""
        yield self._chunk({}, self._reason(result), {"problems": answer_facts(result)["problems"]})
        if self._question.with_usage:
            yield event(self._head | {"object": "chat.completion.chunk", "choices": [], "usage": _usage(result)})
        yield b"data: [DONE]\n\n"

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """Yield the error event. See `Reply.fail`."""
        yield event(error.body())

    def _call(self, arguments: str) -> dict[str, Any]:
        function = {"name": self._question.name, "arguments": arguments}
        return {"id": self._call_id, "type": "function", "function": function}

    def _reason(self, result: JsonResult) -> str:
        if is_cut(result):
            return "length"
        return "tool_calls" if self._question.as_call else "stop"

    def _chunk(
        self, delta: Mapping[str, Any], reason: str | None = None, hpd: Mapping[str, Any] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        chunk = self._head | {"object": "chat.completion.chunk", "choices": [choice]}
        if self._question.with_usage:
            chunk["usage"] = None
        return event(chunk if hpd is None else chunk | {"hpd": hpd})


def _usage(result: JsonResult) -> dict[str, int]:
    read, written = result.num_prompt_tokens, result.num_output_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
