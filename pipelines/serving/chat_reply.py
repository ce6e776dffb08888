"""Replies of `POST /v1/chat/completions`: a completion, or the events of its stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from hpd_core import JsonResult
from hpd_core.text.value_kinds import spelled
from pipelines.serving.question import ServedQuestion
from pipelines.serving.reply import answer_facts, event, is_cut, new_id


class ChatReply:
    """Reply to one question, under the model's name."""

    def __init__(self, question: ServedQuestion, model: str, result: JsonResult) -> None:
        self._question, self._result = question, result
        self._text = spelled(result.data)
        self._facts = answer_facts(result, question.notes)
        self._call_id = new_id("call_")
        self._head = {"id": new_id("chatcmpl-"), "created": int(time.time()), "model": model}

    def whole(self) -> dict[str, Any]:
        """Return the completion."""
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        message |= {"tool_calls": [self._call()]} if self._question.as_call else {"content": self._text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason()}
        usage = {"object": "chat.completion", "choices": [choice], "usage": self._usage()}
        return self._head | usage | {"hpd": self._facts}

    def events(self) -> Iterator[bytes]:
        """Yield the events of a stream. Values end side by side, so the whole text comes in one."""
        delta: dict[str, Any] = {"role": "assistant", "content": None if self._question.as_call else self._text}
        if self._question.as_call:
            delta["tool_calls"] = [{"index": 0, **self._call()}]
        yield self._chunk(delta)
        yield self._chunk({}, self._reason(), self._facts)
        if self._question.with_usage:
            yield event(self._head | {"object": "chat.completion.chunk", "choices": [], "usage": self._usage()})
        yield b"data: [DONE]\n\n"

    def _call(self) -> dict[str, Any]:
        function = {"name": self._question.name, "arguments": self._text}
        return {"id": self._call_id, "type": "function", "function": function}

    def _reason(self) -> str:
        if is_cut(self._result):
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

    def _usage(self) -> dict[str, int]:
        read, written = self._result.num_prompt_tokens, self._result.num_output_tokens
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
