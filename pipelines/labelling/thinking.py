"""What a model thought before its answer, taken out of what it wrote.

The marks are those of the models that vLLM and llama.cpp have parsers for, and what prompts ask for: tags such as
`<think>`, `[THINK]` or `<|START_THINKING|>`, channels (gpt-oss, Gemma), and sentences (Granite).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_NAME = (
    r"think(?:ing)?|thoughts?(?:_process)?|reason(?:ing)?|reflect(?:ion)?|scratch_?pad|analysis|rationale|cot|"
    r"chain_of_thoughts?|(?:inner_)?monologue|planning|draft"
)
# Of a tag: a slash or a word says that it ends; a prefix such as "seed:" or a tempo such as "_fast" says nothing.
_MARK = re.compile(
    rf"""
    (?P<tag>[<\[◁]\|?\s*+
        (?P<slash>/)?\s*+(?:\w+[:|])??(?:(?P<before>begin|start|end)_(?:of_)?)?
        (?:[a-z]+_|ant)??(?P<name>{_NAME})(?:_fast(?:er)?)?(?::(?P<after>start|end|\w+))?
        (?:\s+[\w-]+\s*+=[^<>\n]*+)?
    \s*+\|?[>\]▷])
    |(?P<open><\|channel>|<\|inner_prefix\|>|\[unused16\]|<details\s[^<>]*\breasoning\b[^<>]*>
        |\bHere(?:'s|\ is)\ my\ thought\ process:)
    |(?P<close><channel\|>|<\|inner_suffix\|>|\[unused17\]|</details>|\bHere(?:'s|\ is)\ my\ response:)
    """,
    re.IGNORECASE | re.VERBOSE,
)
# gpt-oss: each message names its channel, or whom it is for.
_CHANNEL = re.compile(r"(?:<\|channel\|>\s*(\w+)[^<]*(?:<\|constrain\|>[^<]*)?|\bto=(\w+))?<\|message\|>")
_CHANNEL_END = re.compile(r"<\|(?:end|return|call|start|eom|eot|channel)\|>")
_PUBLIC = frozenset({"", "final", "user"})
# Where the endpoint leaves out the marks, the names of the channels are all that is left of them.
_BARE_CHANNEL = re.compile(r"\A\s*(?:analysis|commentary)(?=[A-Z])")
_BARE_FINAL = re.compile(r"assistant\s*final(?=\W|[A-Z])")


def without_thoughts(text: str, whole: Sequence[tuple[int, int]] = ()) -> tuple[str, bool]:
    """What was not thought, and whether the thinking has no end: nothing behind it is an answer then.

    `whole` are the beginnings and ends of JSON values in `text`, in their order: "[Draft]" within one is no mark.
    """
    text, start, is_open = _final_channel(text, whole)
    if is_open:
        return text, True
    whole = [(begin - start, end - start) for begin, end in whole]
    spoken: list[str] = []
    inside: list[str] = []  # the thoughts that are not ended yet
    position = 0
    for mark in outside(_MARK, text, whole):
        if not inside:
            spoken.append(text[position : mark.start()])
        position = mark.end()
        name = _kind(mark)
        if not _is_end(mark):
            inside.append(name)
        elif name in inside:
            del inside[len(inside) - 1 - inside[::-1].index(name) :]
        elif not inside and name != "details":
            spoken.clear()  # the beginning of the thought is in the prompt
    if not inside:
        spoken.append(text[position:])
    return "\n".join(spoken), bool(inside)


def _kind(mark: re.Match[str]) -> str:
    name = (mark["name"] or "").casefold()
    if name:
        return "think" if name.startswith(("think", "thought")) else name
    for kind in ("channel", "details", "inner", "unused"):
        if kind in mark.group().casefold():
            return kind
    return "sentence"


def _is_end(mark: re.Match[str]) -> bool:
    if mark["close"] is not None or mark["slash"] is not None:
        return True
    return "end" in ((mark["before"] or "").casefold(), (mark["after"] or "").casefold())


def outside(pattern: re.Pattern[str], text: str, whole: Sequence[tuple[int, int]]) -> Iterator[re.Match[str]]:
    """The places of `pattern` in `text` that begin in none of the extents `whole`, which are in their order."""
    number = 0
    for found in pattern.finditer(text):
        while number < len(whole) and whole[number][1] <= found.start():
            number += 1
        if number == len(whole) or found.start() < whole[number][0]:
            yield found


def _final_channel(text: str, whole: Sequence[tuple[int, int]]) -> tuple[str, int, bool]:
    """The text of the last message that is for the reader, where there are channels, and where it begins; whether none
    has come yet.
    """
    headers = list(outside(_CHANNEL, text, whole))
    if headers:
        public = [header for header in headers if (header[1] or header[2] or "") in _PUBLIC]
        if not public:
            return "", 0, True
        start = public[-1].end()
        later = (end.start() for end in outside(_CHANNEL_END, text, whole) if end.start() >= start)
        end = next(later, None)
        return text[start:end], start, public[-1] is not headers[-1] and end is None
    if _BARE_CHANNEL.match(text):
        finals = list(_BARE_FINAL.finditer(text))
        return (text[finals[-1].end() :], finals[-1].end(), False) if finals else ("", 0, True)
    return text, 0, False
