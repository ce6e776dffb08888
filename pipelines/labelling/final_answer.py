"""From what a teacher wrote to the values of its final answer, by attribute: read leniently, problems counted.

Thoughts are taken out first. Of several answers that differ the one counts that the words in front of it say is the
answer. Where they do not say so there is no answer, so that the teacher is asked again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple

from hpd_core import Attribute, CategorySchema, Value
from hpd_core.text.values import parse_value
from pipelines.labelling.answered_objects import AnsweredObjects
from pipelines.labelling.loose_json import Found, Object, find_values, read_value
from pipelines.labelling.thinking import outside, without_thoughts

# An end of turn: what a model goes on with behind it is no answer to us.
_TURN_END = re.compile(r"(?<=\S)\s*(?:<\|(?:im_end|eot_id|endoftext|end|end_of_text)\|>|</s>|<end_of_turn>)")
_FENCE = re.compile(r"```\w*")
_DECORATION = re.compile(r"```\w*|<[^<>]*>")
_WORD = re.compile(r"[^\W\d_]+")
_MAX_BEFORE, _MAX_BEHIND = 200, 1000  # characters around an answer that may say what it is
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|\n")

_NEGATED = re.compile(r"\b(?:not|wrong|incorrect|instead of|rather than)\b", re.IGNORECASE)
_FINAL = re.compile(
    r"\b(?:final|finally|corrected|revised|updated|fixed|endgültige?|begin_of_box|boxed)\b"
    r"|<(?:answer|output|result|response)>\s*\Z",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\b(?:examples?|e\.g|for instance|format|template|schema|draft|guess|first|initial|initially|earlier|previous"
    r"|attempt|alternatives?|alternatively|candidates?|options?|variants?|placeholder|maybe|perhaps|could be|would be"
    r"|reasoning|thinking|thoughts?|analysis|reflection|explanation|similar|beispiel|entwurf|exemple|ejemplo)\b",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"\b(?:answer|result|output|response|solution|so|therefore|thus|hence|antwort|ergebnis|réponse|respuesta)\b",
    re.IGNORECASE,
)
_CLOSING_TAG = re.compile(r"</[^<>]*>|<\|end_[^<>]*>")
# A heading or key of nothing but these has an object below it that is about the answer: where a value stands, how sure
# it is.
_ABOUT = re.compile(
    r"(?:evidence|confidence|certainty|score|probability|source|origin|verification|justification|reason|reasoning"
    r"|rationale|explanation|offset|span|position|location|unit|type|quote|citation|reference|comment|note|metadata"
    r"|provenance|where|why)s?"
)
_ABOUT_WHAT = re.compile(r"(?:the|my|for|of|each|per|value|attribute|key|field|level|character|i|found|it)s?")
# Sentences behind an answer that take it back: they begin so, say that it is wrong, or what an attribute should be.
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_TAKES_BACK = re.compile(
    r"\W*(?:wait|hmm*|actually|oops|sorry|apologies|(?:scratch|strike) that|my mistake"
    r"|on (?:second thoughts?|reflection)|let me (?:correct|fix|check|re\w+)|(?:no|nope|correction)\s*(?=[,.!:;–—]))\b",
    re.IGNORECASE,
)
_SAYS_WRONG = re.compile(
    r"\b(?:(?:is|are|was|were|be|am|seems?|looks?)\s+(?:\w+\s+)?(?:wrong|incorrect|mistaken)"
    r"|made an? (?:mistake|error))\b",
    re.IGNORECASE,
)
_SAYS_RIGHT = re.compile(r"\b(?:no|not|nothing|never|without|if)\b|n['’]t\b|\?\s*\Z", re.IGNORECASE)
_IS_NOT_RIGHT = re.compile(r"(?:\bnot|n['’]t)\s+(?:\w+\s+)?(?:right|correct)\b[^?]*\Z", re.IGNORECASE)
_OUGHT = re.compile(r"\b(?:(?:should|must) (?:be|read|have been)|ought to be|more likely)\b", re.IGNORECASE)
# A teacher that names attribute and value, or says more of a value than what it is.
_NAME_KEYS = ("attribute", "attribute name", "name", "key", "field", "property")
_VALUE_KEYS = ("value", "values", "attribute value", "extracted value", "answer", "text", "val")
_FILLED_IN = re.compile(
    r"\.{2,}|…|<.*>|\[[^\"']*\]|\{.*\}"
    r"|(?:string|str|text|value|number|boolean|bool|integer|float)(?:\s*(?:[|/]|or)\s*\w+)*",
    re.IGNORECASE | re.DOTALL,
)
_TO_FILL_IN = re.compile(r"(?:your|the|extracted|insert|enter)\s.*|.*\shere", re.IGNORECASE | re.DOTALL)
_WHAT_IS_FILLED_IN = frozenset({"value", "answer", "text", "attribute"})
_DAMAGED = json.dumps("\ufffd").strip('"')
_MAX_TEXT = 1_000_000  # characters that are looked through
_MAX_NESTED = 4  # objects around an answer


class FinalAnswer(NamedTuple):
    """The values of an answer by attribute, as far as it names them, and what was wrong with it, by kind."""

    values: dict[str, Value]
    problems: Counter[str]


# Why there is none: no JSON object; one that only shows the form; one that is not closed; thoughts that are not; what
# goes on behind an answer was cut, or takes it back; several, and nothing says which; so long a text that nobody asked
# for it.
NoAnswer = Literal["none", "template", "unclosed", "thinking", "cut_behind", "taken_back", "several", "too_long"]


def read_answer(
    schema: CategorySchema, text: str, fields: Mapping[str, str], *, is_cut: bool = False
) -> FinalAnswer | NoAnswer:
    """What a teacher's text finally answers about the product with `fields`; `is_cut`: the text was cut at its limit.

    A key that is equal to one attribute's name but for case and punctuation counts as that attribute.
    """
    names = _Names(schema, fields)
    found = _find_answer(names, text, is_cut)
    if isinstance(found, str):
        return found
    answer, problems = found
    problems["doubled_key"] += answer.num_doubled
    written: dict[str, list[tuple[str, Any]]] = {}
    for key, value in answer.items():
        name = names.of(key)
        if name is None:
            problems["unknown_key"] += 1
        else:
            problems["misspelled_key"] += name != key
            written.setdefault(name, []).append((key, value))
    values: dict[str, Value] = {}
    for name, pairs in written.items():
        problems["doubled_key"] += len(pairs) - 1
        attribute = names.attributes[name]
        bare = [_bare(attribute, value) for _, value in pairs]
        if any(key in answer.disputed for key, _ in pairs) or any(value != bare[0] for value in bare):
            continue  # nothing says which of its values is meant
        problems["wrapped_value"] += bare[0] is not pairs[0][1]
        values[name] = _parsed(attribute, bare[0], fields)
    problems["missing_key"] = len(names.attributes) - len(written)
    return FinalAnswer(values, +problems)


def _parsed(attribute: Attribute, value: Any, fields: Mapping[str, str]) -> Value:
    written = json.dumps(value, default=lambda _: {})
    if _DAMAGED in written and not any("\ufffd" in text for text in fields.values()):
        written = "{}"  # the endpoint lost a letter: no value of any attribute
    return parse_value(attribute, written, closed=True, fields=fields)


class _Names:
    """The attributes of a schema, by their name and by how it may be spelled, and the product's text."""

    def __init__(self, schema: CategorySchema, fields: Mapping[str, str]) -> None:
        self.attributes = {attribute.name: attribute for attribute in schema.attributes}
        counts = Counter(_spelling(name) for name in self.attributes)
        self.objects = AnsweredObjects(schema.attributes, _spelling)
        self._spelled = {_spelling(name): name for name in self.attributes if counts[_spelling(name)] == 1}
        self.words = {word for spelling in counts for word in spelling.split()}
        self.spellings = frozenset(counts)
        self._text = "\n".join(fields.values())

    def of(self, key: str) -> str | None:
        """The attribute that a key means."""
        return key if key in self.attributes else self._spelled.get(_spelling(key))

    def count(self, answer: Mapping[str, Any]) -> int:
        """How many keys are an attribute's."""
        return sum(_spelling(key) in self.spellings for key in answer)

    def is_said(self, item: str) -> bool:
        """Whether the product's text has `item` to the letter, as words of its own."""
        return bool(_WORD.search(item)) and bool(re.search(rf"(?<!\w){re.escape(item.strip())}(?!\w)", self._text))

    def is_about(self, text: str) -> bool:
        """Whether a heading or key says that what it holds is about the answer."""
        words = set(_words(text))
        about = set(filter(_ABOUT.fullmatch, words))
        return bool(about - self.words) and all(map(_ABOUT_WHAT.fullmatch, words - about))


class _Mark(IntEnum):
    """What the words in front of an answer say of it."""

    ABOUT = 0
    ASIDE = 1
    NONE = 2
    ANSWER = 3
    FINAL = 4


@dataclass(slots=True)
class _Candidate:
    """An answer in the text, or several in one value, of which none can be told to be the one."""

    answer: Object | None
    mark: _Mark
    words_before: list[str]
    rest: str


def _find_answer(names: _Names, text: str, is_cut: bool) -> tuple[Object, Counter[str]] | NoAnswer:
    if len(text) > _MAX_TEXT:
        return "too_long"
    text = text.strip()
    if text.startswith('"') and isinstance(inner := read_value(text), str):
        text = inner.strip()  # encoded twice
    found = list(find_values(text))
    spoken, is_thinking = without_thoughts(text, _extents(found))
    if is_thinking:
        return "thinking"
    if spoken != text:
        found = list(find_values(spoken))
    if end := next(outside(_TURN_END, spoken, _extents(found)), None):
        spoken = spoken[: end.start()]
        found = list(find_values(spoken))
    if found and found[-1].value is None:
        return "unclosed"
    if candidates := _candidates(names, spoken, found):
        return _choose(names, candidates, is_cut)
    objects = [each.value for each in found if isinstance(each.value, Object)]
    if any(_answers(names, each) for each in objects):
        return "template"
    return (objects[-1], Counter()) if objects else "none"


def _extents(found: list[Found]) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in found if each.value is not None]


def _candidates(names: _Names, text: str, found: list[Found]) -> list[_Candidate]:
    """The answers in the text; without those that are said to be about another one."""
    candidates = []
    position = 0
    for each in found:
        answers = [answer for answer in _answers(names, each.value) if not _is_template(names, answer)]
        if answers:
            before = text[position : each.start]
            rest = text[each.end : each.end + _MAX_BEHIND]
            candidates.append(_Candidate(_merged(names, answers), _mark(names, before), _words(before), rest))
            position = each.end
    return [candidate for candidate in candidates if candidate.mark is not _Mark.ABOUT] or candidates


def _choose(names: _Names, candidates: list[_Candidate], is_cut: bool) -> tuple[Object, Counter[str]] | NoAnswer:
    *earlier, last = candidates
    marked = [candidate for candidate in earlier if candidate.mark > max(last.mark, _Mark.NONE)]
    if marked and (last.mark is _Mark.ASIDE or marked[-1].mark is _Mark.FINAL):
        last = marked[-1]
        earlier = earlier[: earlier.index(last)]
    if last.answer is None:
        return "several"
    if is_cut and last.mark < _Mark.FINAL and _words(last.rest):
        return "cut_behind"
    if last is candidates[-1] and _takes_back(names, last.rest[:_MAX_BEFORE]):
        return "taken_back"
    answer, follower = last.answer, last
    problems: Counter[str] = Counter()
    for candidate in reversed(earlier):
        relation = _relation(names, candidate.answer, answer)
        if candidate.mark < last.mark:
            problems["earlier_answer"] += candidate.mark is _Mark.NONE and relation == "differs"
            continue
        # One object for each attribute has nothing between them but perhaps the attribute's name.
        is_beside = set(follower.words_before) <= names.words
        if candidate.answer is None or relation == "differs" or (relation == "apart" and not is_beside):
            return "several"
        answer, follower = _union(names, candidate.answer, answer), candidate
    return answer, +problems


def _takes_back(names: _Names, behind: str) -> bool:
    """Whether a sentence behind an answer takes it back."""
    for sentence in _SENTENCE.findall(_DECORATION.sub(" ", behind)):
        is_wrong = _SAYS_WRONG.search(sentence) and not _SAYS_RIGHT.search(sentence)
        is_corrected = _OUGHT.search(sentence) and not names.words.isdisjoint(_words(sentence))
        if _TAKES_BACK.match(sentence) or is_wrong or is_corrected or _IS_NOT_RIGHT.search(sentence):
            return True
    return False


def _relation(names: _Names, earlier: Object | None, later: Object) -> Literal["agrees", "apart", "differs"]:
    """How an earlier answer stands to a later one."""
    if earlier is None:
        return "differs"
    before, after = (
        {name: _bare(names.attributes[name], value) for key, value in answer.items() if (name := names.of(key))}
        for answer in (earlier, later)
    )
    shared = before.keys() & after.keys()
    if not shared:
        return "apart"
    return "agrees" if all(before[name] == after[name] for name in shared) else "differs"


def _union(names: _Names, earlier: Object, later: Object) -> Object:
    has = {names.of(key) or key for key in later}
    added = [(key, value) for key, value in earlier.items() if (names.of(key) or key) not in has]
    union = Object([*later.items(), *added])
    union.num_doubled = earlier.num_doubled + later.num_doubled
    union.disputed = earlier.disputed | later.disputed
    return union


def _merged(names: _Names, answers: list[Object]) -> Object | None:
    """The answers within one value as one; None if they contradict each other: they are of several products."""
    merged = answers[-1]
    for answer in reversed(answers[:-1]):
        if _relation(names, answer, merged) == "differs":
            return None
        merged = _union(names, answer, merged)
    return merged


def _answers(names: _Names, value: Any, nested: int = 0) -> list[Object]:
    """The objects in `value` whose keys are attributes, without those that are said to be something else."""
    if isinstance(value, str) and "{" in value:
        found = list(find_values(value))
        value = found[0].value if len(found) == 1 else None
    if nested > _MAX_NESTED or not isinstance(value, Object | list):
        return []
    if pairs := _pairs(names, value if isinstance(value, list) else [value]):
        return [pairs]
    if isinstance(value, list):
        return [answer for item in value for answer in _answers(names, item, nested + 1)]
    value = names.objects.by_name(value)
    inner: dict[_Mark, list[Object]] = {}
    for key, item in value.items():
        mark = _mark(names, _spelling(key)) if len(value) > 1 else _Mark.NONE
        inner.setdefault(mark, []).extend(_answers(names, item, nested + 1))
    nearest = [*inner.get(_Mark.FINAL, []), *inner.get(_Mark.ANSWER, [])] or inner.get(_Mark.NONE, [])
    num_known = names.count(value)
    if num_known and num_known >= max((names.count(answer) for answer in nearest), default=0):
        return [value]
    return nearest


def _pairs(names: _Names, items: list[Any]) -> Object | None:
    """[{"attribute": "Brand", "value": "Acme"}, ...] and [["Brand", "Acme"], ...] as an object; None: it is neither."""
    pairs: list[tuple[str, Any]] = []
    for item in items:
        if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
            pairs.append((item[0], item[1]))
            continue
        keys = {_spelling(key): key for key in item} if isinstance(item, Object) else {}
        name = next((item[keys[key]] for key in _NAME_KEYS if key in keys), None)
        if not isinstance(name, str) or not any(key in keys for key in _VALUE_KEYS):
            return None
        pairs.append((name, item))
    return Object(pairs) if any(names.of(name) for name, _ in pairs) else None


def _bare(attribute: Attribute, value: Any) -> Any:
    """The value itself of {"value": ..., "evidence": ...}, and of a list of one where the attribute is no list."""
    if isinstance(value, list):
        bare = [_bare(attribute, item) for item in value]
        if len(bare) == 1 and not attribute.multiple:
            return bare[0]
        return bare if bare != value else value
    if not isinstance(value, Object):
        return value
    keys = {_spelling(key): key for key in value}
    held = [value[keys[key]] for key in _VALUE_KEYS if key in keys]
    if not held:
        return value
    unit = value[keys["unit"]] if "unit" in keys else None
    is_measured = attribute.is_text or attribute.unit is not None
    if isinstance(held[0], str) and isinstance(unit, str) and is_measured and not held[0].endswith(unit):
        return f"{held[0]} {unit}"  # a number in another unit than the attribute's is none for it
    return _bare(attribute, held[0])


def _is_template(names: _Names, answer: Object) -> bool:
    """Whether it only shows the form: {"Brand": "...", "Colour": "<colour>"}, or is a schema."""
    shown = [
        (key, item)
        for key, value in answer.items()
        if names.of(key)
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    texts = {item for _, item in shown if isinstance(item, str)}
    is_one_word = len(shown) > 1 and len(texts) == 1  # "string" for each of them, whatever the product's text has
    return bool(shown) and all(_is_filled_in(names, key, item, is_one_word) for key, item in shown)


def _is_filled_in(names: _Names, key: str, item: Any, is_one_word: bool) -> bool:
    if isinstance(item, Object):
        return "type" in item and not any(_spelling(inner) in _VALUE_KEYS for inner in item)
    name = names.of(key)
    if not isinstance(item, str) or name is None or item in names.attributes[name].vocabulary.spellings:
        return False
    if not is_one_word and names.is_said(item):
        return False
    of_name = {*_words(name), *_WHAT_IS_FILLED_IN}
    return (
        bool(_FILLED_IN.fullmatch(item.strip()))
        or (bool(_TO_FILL_IN.fullmatch(item.strip())) and not of_name.isdisjoint(_words(item)))
        or (_spelling(item) == _spelling(key) != "")
    )


def _mark(names: _Names, before: str) -> _Mark:
    """What the last sentence in front of an answer says of it."""
    plain = _FENCE.sub("", _CLOSING_TAG.sub("", before[-_MAX_BEFORE:])).strip()
    sentence = _SENTENCE_END.split(plain)[-1]
    if names.is_about(sentence):
        return _Mark.ABOUT
    for pattern, mark in (
        (_NEGATED, _Mark.ASIDE),
        (_FINAL, _Mark.FINAL),
        (_ASIDE, _Mark.ASIDE),
        (_ANSWER, _Mark.ANSWER),
    ):
        if pattern.search(sentence):
            return mark
    return _Mark.NONE


def _words(text: str) -> list[str]:
    return _WORD.findall(_DECORATION.sub(" ", text).casefold())


def _spelling(key: str) -> str:
    return " ".join(re.split(r"[\W_]+", key.casefold())).strip()
