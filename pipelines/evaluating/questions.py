"""Questions to a judge: the prompt of the paper's Figure 11 (arXiv 2604.26209), word for word.

The judge's five classes (the paper's Figure 11, arXiv 2604.26209) and its LLM-F1 (appendix E).

    LLM-P  = (C + CN) / (C + CN + H + I)
    LLM-R  = (C + CN) / (C + CN + M + I)
    LLM-F1 = 2 LLM-P LLM-R / (LLM-P + LLM-R)

C correct, CN correct null, I incorrect, M missing, H hallucination. Answers that a judge leaves undecided are in none.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from hpd_core import Attribute
from hpd_core.text.template import PromptTemplate, render_attribute, render_document
from pipelines.labelling.final_answer import DISPUTED, find_json
from pipelines.labelling.teacher_answers import Message
from pipelines.quality.scoring import NUM_RESAMPLES, SEED, RateEstimates, Rates, estimate_rates, rates_of, resampled

INSTRUCTION = """\
You are an expert at evaluating product details.

Consider the following product attributes:

{attributes}

An existing system has attempted to extract the value of each attribute from the product information below. Analyze \
the input context and extracted values to determine if the extracted values are correct.

Classify each attribute into 1 of 5 types:

- "correct": The input text contains sufficient information to extract the attribute value beyond reasonable doubt. \
The attribute value extracted is correct and complete. Words that convey the same meaning are allowed.
- "incorrect": The input text contains sufficient information to extract the attribute value beyond reasonable doubt. \
The attribute value extracted is incorrect or incomplete. Do not include "null" values in this category.
- "missing": The input text contains sufficient information to extract the attribute value beyond reasonable doubt. \
The attribute value extracted is "null" or missing.
- "correct null": The value cannot be directly inferred from the input context. The attribute value extracted is \
"null" or similar. Values indicating the absence of an attribute ("no", "none") should be "correct null".
- "hallucination": The value cannot be directly inferred from the input context. An attribute value was extracted \
which is not indicating the absence of a value.

Use the following explanation structure for each attribute:
<attribute_name>: The value "<value>" is <classification> because <brief explanation>.

After the explanation, output a JSON dict with a key for each attribute (use the attribute name) and one of the \
evaluation results as value (correct, incorrect, missing, correct null, hallucination). Wrap the JSON around \
<result></result> tags. Do not provide explanations.

Input product:

{product}

Extracted Values:

{values}"""

REMINDER = """\
That answer cannot be used: {problem}. Answer again, with one JSON dict in <result></result> tags and nothing else: a \
key for each attribute, spelled as in the list, and one of correct, incorrect, missing, correct null, hallucination as \
its value."""

_MAX_LISTED_VALUES = PromptTemplate().max_listed_values
_MAX_SHOWN_ANSWER = 8000  # characters of a useless answer that are shown to the judge again

Values = Mapping[str, str | list[str] | None]


def question(
    attributes: Sequence[Attribute], fields: Mapping[str, str], values: Values, system: str | None = None
) -> list[Message]:
    """Build the question about one product: its text as the model read it, and the values as the model wrote them."""
    parts = {
        "{attributes}": "\n".join(render_attribute(each, _MAX_LISTED_VALUES) for each in attributes),
        "{product}": render_document(fields),
        "{values}": json.dumps(values, ensure_ascii=False, indent=1),
    }
    # What stands in a product's text is never taken for a place to fill in.
    text, rest = "", INSTRUCTION
    for name, part in parts.items():
        before, rest = rest.split(name)
        text += before + part
    messages = [{"role": "system", "content": system}] if system else []
    return [*messages, {"role": "user", "content": text + rest}]


def asked_again(messages: list[Message], answer: str, problem: str) -> list[Message]:
    """Return the question, the incomplete answer, and what it lacks."""
    reminder = REMINDER.replace("{problem}", problem)
    if not answer.strip():
        return [*messages[:-1], {"role": "user", "content": f"{messages[-1]['content']}\n\n{reminder}"}]
    shown = {"role": "assistant", "content": answer[-_MAX_SHOWN_ANSWER:]}
    return [*messages, shown, {"role": "user", "content": reminder}]


Class = Literal["correct", "correct null", "incorrect", "missing", "hallucination"]
CLASSES: tuple[Class, ...] = get_args(Class)
RIGHT: tuple[Class, ...] = ("correct", "correct null")

_OF_NULL: tuple[Class, ...] = ("correct null", "missing")
# A value such as "none" says that there is none.
_OF_VALUE: tuple[Class, ...] = ("correct", "correct null", "incorrect", "hallucination")

_Numbers = npt.NDArray[Any]


def read_class(text: object) -> Class | None:
    """Parse the class that a judge wrote, in any case and with any word separators; None if it is not one."""
    if not isinstance(text, str):
        return None
    folded = re.sub(r"[\s_-]+", " ", text.casefold()).strip(" .\"'")
    return next((each for each in CLASSES if each == folded), None)


def fits(found: Class, is_null: bool) -> bool:
    """Return whether an answer can be of this class: a null cannot be incorrect, and a value cannot be missing."""
    return found in (_OF_NULL if is_null else _OF_VALUE)


def count_classes(classes: Iterable[Class | None]) -> dict[Class, int]:
    """Count the answers of each class; None (undecided) counts in none."""
    found = list(classes)
    return {each: found.count(each) for each in CLASSES}


def llm_rates(counts: Sequence[int]) -> Rates | None:
    """Return LLM-P, LLM-R and LLM-F1 of counts in the order of `CLASSES`; None if nothing was decided.

    A rate with a zero numerator or denominator is 0.
    """
    return Rates(*(float(rate) for rate in _rates(np.asarray(counts)))) if any(counts) else None


def llm_estimates(
    by_product: Sequence[Sequence[int]], num_resamples: int = NUM_RESAMPLES, seed: int = SEED
) -> RateEstimates | None:
    """Return the rates over all products' counts, with 95% intervals from a bootstrap over the products.

    Products are resampled, because answers about one product are dependent. Products without a decided answer are left
    out; None if there are no others.
    """
    counts = np.asarray([each for each in by_product if any(each)], dtype=np.int64).reshape(-1, len(CLASSES))
    rates = llm_rates(counts.sum(axis=0).tolist())
    if rates is None:
        return None
    return estimate_rates(rates, _rates(resampled(counts, num_resamples, seed)))


def _rates(counts: _Numbers) -> npt.NDArray[np.float64]:
    """Compute LLM-P, LLM-R and LLM-F1: (..., 5) counts -> (..., 3) rates."""
    correct, null, incorrect, missing, made_up = (counts[..., column] for column in range(len(CLASSES)))
    right = correct + null
    return rates_of(right, right + made_up + incorrect, right + missing + incorrect)


_RESULT = re.compile(r"<result>(.*?)(?:</result>|\Z)", re.IGNORECASE | re.DOTALL)
_MAX_TEXT = 1_000_000  # characters that are looked through
_MAX_TOLD = 5  # attributes that the judge is told of, and people are
_MAX_SHOWN = 40


class VerdictReading(NamedTuple):
    """A parsed answer: a class for each judged attribute, and a problem for each other one."""

    classes: Mapping[str, Class]
    problems: Mapping[str, str]

    @property
    def problem(self) -> str:
        """Description of the problems, for the judge; empty if there are none."""
        told = [f"{name!r} {problem}" for name, problem in list(self.problems.items())[:_MAX_TOLD]]
        more = len(self.problems) - len(told)
        return "; ".join([*told, *([f"and {more} more"] if more else [])])


def read_verdicts(text: str, values: Values) -> VerdictReading:
    """Parse an answer about the attributes in `values`; the last JSON object that names some of them counts."""
    written = _written(text, values)
    classes, problems = {}, {}
    for name, value in values.items():
        found = written.get(name, [])
        judged = read_class(found[0]) if found else None
        if not found:
            problems[name] = "has no class"
        elif any(each != found[0] for each in found):
            problems[name] = "has two classes"
        elif judged is None:
            problems[name] = f"is {str(found[0])[:_MAX_SHOWN]!r}, which is no class"
        elif not fits(judged, value is None):
            problems[name] = f"has {'no' if value is None else 'a'} value, which cannot be {judged!r}"
        else:
            classes[name] = judged
    return VerdictReading(classes, problems)


def _written(text: str, values: Values) -> dict[str, list[Any]]:
    """Return the classes written for each attribute; several, if a key was repeated with different classes.

    A key that equals one attribute's name except for case and white space counts as that attribute.
    """
    counts = Counter(map(_folded, values))
    alone = {_folded(name): name for name in values if counts[_folded(name)] == 1}
    found = _object(text, {*values, *alone})
    written: dict[str, list[Any]] = {}
    for key, value in found.items():
        name = key if key in values else alone.get(_folded(key))
        if name is not None:
            written.setdefault(name, []).extend([value, None] if value is DISPUTED else [value])
    return written


def _object(text: str, names: Collection[str]) -> dict[str, Any]:
    """Return the last object that names an attribute: in the last tags that hold one, else anywhere.

    An object that names none is replaced by the last such object inside it.
    """
    for part in [*reversed(_RESULT.findall(text[-_MAX_TEXT:])), text[-_MAX_TEXT:]]:
        try:
            outer = [value for value, _, _ in find_json(part) if isinstance(value, dict)]
        except ValueError:
            continue  # a value that is cut, or not JSON: the judge is asked again
        for each in reversed(outer):
            inner = [value for value in each.values() if isinstance(value, dict)]
            for found in (each, *reversed(inner)):
                if any(key in names or _folded(key) in names for key in found):
                    return found
    return {}


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
