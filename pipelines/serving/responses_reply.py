"""Replies of `POST /v1/responses`: a response, or the events of its stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import FieldAnswer, JsonResult
from hpd_core.text.value_kinds import spelled
from pipelines.serving.question import ServedQuestion
from pipelines.serving.reply import ApiError, answer_facts, event, field_facts, is_cut, new_id


class ResponsesReply:
    """The reply to one question. Implements `reply.Reply`."""

    def __init__(self, question: ServedQuestion, model: str) -> None:
        self._question = question
        self._item_id = new_id("fc_" if question.as_call else "msg_")
        self._call_id = new_id("call_")
        self._text = ""
        self._num_events = 0
        self._head = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "instructions": question.instruction,
            "parallel_tool_calls": False,
            "store": False,
            "tool_choice": "required" if question.as_call else "none",
            "tools": [self._tool()] if question.as_call else [],
            "text": {"format": {"type": "text"} if question.as_call else self._format()},
            "error": None,
            "incomplete_details": None,
        }

    def whole(self, result: JsonResult) -> dict[str, Any]:
        """Return the whole response. See `Reply.whole`."""
        cut = is_cut(result)
        status = "incomplete" if cut else "completed"
        return self._head | {
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self._item(spelled(result.data), status)],
            "usage": _usage(result),
            "hpd": answer_facts(result, self._question.notes),
        }

    def begin(self) -> Iterator[bytes]:
        """Yield the first events. See `Reply.begin`."""
        empty = self._head | {"status": "in_progress", "output": [], "usage": None}
        yield self._event("response.created", response=empty)
        yield self._event("response.in_progress", response=empty)
        item = self._item("", "in_progress")
        if self._question.as_call:
            yield self._event("response.output_item.added", output_index=0, item=item)
            return
        yield self._event("response.output_item.added", output_index=0, item=item | {"content": []})
        yield self._part_event("response.content_part.added", part=_part(""))

    def go_on(self, text: str, fields: Sequence[FieldAnswer]) -> Iterator[bytes]:
        """Yield the events of a new piece. See `Reply.go_on`."""
        self._text += text
        # A client reads no kind of event that it does not know: fields go with text, of which there may be none.
        facts = {"hpd": {"fields": field_facts(fields)}} if fields else {}
        if not (text or fields):
            return
        if self._question.as_call:
            yield self._item_event("response.function_call_arguments.delta", delta=text, **facts)
        else:
            yield self._part_event("response.output_text.delta", delta=text, logprobs=[], **facts)

    def end(self, result: JsonResult) -> Iterator[bytes]:
        """Yield the last events. See `Reply.end`."""
        done = self.whole(result)
        if self._question.as_call:
            yield self._item_event(
                "response.function_call_arguments.done", name=self._question.name, arguments=self._text
            )
        else:
            yield self._part_event("response.output_text.done", text=self._text, logprobs=[])
            yield self._part_event("response.content_part.done", part=_part(self._text))
        yield self._event("response.output_item.done", output_index=0, item=done["output"][0])
        yield self._event(f"response.{done['status']}", response=done)

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """Yield the error event. See `Reply.fail`."""
        told = error.body()["error"]
        yield self._event("error", code=told["code"] or told["type"], message=told["message"], param=told["param"])

    def _item(self, text: str, status: str) -> dict[str, Any]:
        item = {"id": self._item_id, "status": status}
        if self._question.as_call:
            call = {"call_id": self._call_id, "name": self._question.name, "arguments": text}
            return item | {"type": "function_call"} | call
        return item | {"type": "message", "role": "assistant", "content": [_part(text)]}

    def _tool(self) -> dict[str, Any]:
        question = self._question
        return {"type": "function", "name": question.name, "parameters": question.schema, "strict": True}

    def _format(self) -> dict[str, Any]:
        question = self._question
        return {"type": "json_schema", "name": question.name, "schema": question.schema, "strict": True}

    def _event(self, kind: str, **facts: Any) -> bytes:
        number, self._num_events = self._num_events, self._num_events + 1
        return event({"type": kind, "sequence_number": number, **facts}, kind)

    def _item_event(self, kind: str, **facts: Any) -> bytes:
        return self._event(kind, item_id=self._item_id, output_index=0, **facts)

    def _part_event(self, kind: str, **facts: Any) -> bytes:
        return self._item_event(kind, content_index=0, **facts)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(result: JsonResult) -> Mapping[str, Any]:
    read, written = result.num_prompt_tokens, result.num_output_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


class ChatReply:
    """The reply to one question. Implements `reply.Reply`."""

    def __init__(self, question: ServedQuestion, model: str) -> None:
        self._question = question
        self._call_id = new_id("call_")
        self._head = {"id": new_id("chatcmpl-"), "created": int(time.time()), "model": model}

    def whole(self, result: JsonResult) -> dict[str, Any]:
        """Return the whole completion. See `Reply.whole`."""
        text = spelled(result.data)
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        message |= {"tool_calls": [self._call(text)]} if self._question.as_call else {"content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason(result)}
        return self._head | {
            "object": "chat.completion",
            "choices": [choice],
            "usage": _chat_usage(result),
            "hpd": answer_facts(result, self._question.notes),
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
        facts = answer_facts(result, self._question.notes)
        del facts["fields"]  # they were told one by one
        yield self._chunk({}, self._reason(result), facts)
        if self._question.with_usage:
            yield event(self._head | {"object": "chat.completion.chunk", "choices": [], "usage": _chat_usage(result)})
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


def _chat_usage(result: JsonResult) -> dict[str, int]:
    read, written = result.num_prompt_tokens, result.num_output_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
