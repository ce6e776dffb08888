"""Cache of a judge's answers by question, so that no answer is paid twice, even after a kill or a new judgement.

A local file of JSON lines. The key is a hash of the model, the question's words and other settings that decide the
answer. The address is not part of it, because the same model may move. The judge's text is stored, not its parsed form.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from hpd_core.types import content_hash
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.errors import UsageError
from pipelines.labelling.completions import ChatCompletion, well_formed
from pipelines.labelling.teacher_prompts import Message
from pipelines.store.line_log import open_log, whole_lines

_DECIDES = ("model", "temperature", "max_output_tokens", "request")


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """A judge's answer.

    Attributes:
        declined: its reason for not judging; empty if it judged.
        is_cut: whether the token limit ended it.
        input_tokens, output_tokens: as the endpoint counts them; None if it does not report them.
    """

    text: str
    declined: str = ""
    is_cut: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None

    @classmethod
    def of(cls, completion: ChatCompletion) -> Self:
        """Convert the endpoint's completion."""
        read, written = completion.usage or (None, None)
        text, declined = well_formed(completion.text), well_formed(completion.declined)
        return cls(text, declined, completion.is_cut, read, written)

    def cost(self, config: OpenAITeacherConfig) -> float | None:
        """Return US dollars at these prices; None without prices or tokens."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return config.cost(self.input_tokens, self.output_tokens)


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
        self._answers: dict[str, JudgeAnswer] = {}
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

    def get(self, key: str) -> JudgeAnswer | None:
        """Return the answer to the question with this key, or None."""
        return self._answers.get(key)

    def add(self, config: OpenAITeacherConfig, messages: Sequence[Message], answer: JudgeAnswer) -> None:
        """Write an answer at once."""
        key = question_key(config, messages)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"key": key, "model": config.model, "time": now, **asdict(answer)}
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        self._answers[key] = answer

    def _load(self, line: bytes, number: int) -> None:
        try:
            read: Mapping[str, Any] = json.loads(line)
            names = ("text", "declined", "is_cut", "input_tokens", "output_tokens")
            self._answers[read["key"]] = JudgeAnswer(*(read[name] for name in names))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{self.path}, line {number}: no judge's answer; name another file with --judge-cache, or remove the "
                "line to have its question asked again"
            ) from error


def question_key(config: OpenAITeacherConfig, messages: Sequence[Message]) -> str:
    """Hash a question; equal for two questions that have the same answer."""
    return content_hash([*(getattr(config, name) for name in _DECIDES), list(messages)])
