"""Writes docs/models.md, of what the last sweep over the model types of transformers has found.

python -m tests.core.sweep --out tests/core/sweep/outcomes.json    sweeps, in minutes
python -m docs.generate_models                                     writes the page
python -m docs.generate_models --check                             exit code 1 if it is not what was found
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpd_core.families.table import FAMILIES, Family
from tests.core.sweep.outcome import Outcome
from tests.core.sweep.record import Record
from tests.core.sweep.types import ENCODER_DECODERS, ENCODERS, OTHERS

PAGE = Path(__file__).resolve().with_name("models.md")

_HEAD = """# Models

<!-- Written by `docs/generate_models.py`. -->

Every decoder-only model type (`model_type` in `config.json`) of transformers {version}, and every multimodal one whose
text tower is a decoder: {count} in all. Of each a tiny random model in fp32 is compared with the oracle, token for
token (`python -m tests.core.sweep`). *Exact*: for texts shorter and longer than every window, chunk and top-k of the
model.

| | types |
|---|--:|
"""


def page(record: Record) -> str:
    """The page's text."""
    groups = _groups(record)
    lines = [_HEAD.format(version=record.transformers, count=len(record.by_type)).rstrip()]
    lines += [f"| {title} | {len(found)} |" for title, found in groups.items()]
    for title, found in groups.items():
        lines += ["", f"## {title}", ""]
        lines += [_ABOUT[title], ""] if title in _ABOUT else []
        if title == _EXACT:
            lines.append(", ".join(f"`{name}`" for name in sorted(found)) + ".")
        else:
            lines += ["| types | why |", "|---|---|", *_by_reason(found)]
    lines += ["", *_RUN.splitlines(), *_ways()]
    for text in (_LENGTHS, _TOKENIZERS, _QUANTIZED):
        lines += ["", *text.splitlines()]
    lines += ["", "## Not swept", "", "| types | why |", "|---|---|"]
    for names, why in (
        (ENCODERS, "encoders, which nobody has trained to answer"),
        (ENCODER_DECODERS, "their decoder reads what an encoder made, or cannot do without an image or sound"),
        (OTHERS, "do not decode tokens from left to right on their own: bytes in patches, diffusion, drafters"),
    ):
        lines.append(f"| {_names(names)} | {why} |")
    return "\n".join(lines) + "\n"


_QUANTIZED = """## Quantized checkpoints

Of each kind a tiny Llama is loaded through transformers and decoded on a CPU
(`tests/core/models/test_quantized_checkpoints.py`). For other kinds the proof at load decides. LoRA adapters stay
beside such weights.

| checkpoint | tried with | found |
|---|---|---|
| GPTQ, 4 bits | gptqmodel 7.7.0, optimum 2.3.0 | exact in both layouts (1) |
| AWQ, 4 bits | gptqmodel 7.7.0 | exact in both layouts (1) |
| compressed-tensors, packed to 4 bits | compressed-tensors 0.20.0 | exact in both layouts (2) |
| compressed-tensors, 8 bits, activations by token | compressed-tensors 0.20.0 | none of 123 tokens is another (3) |
| compressed-tensors, activations by batch | | refused: other products would change an answer |
| FP8, by any tool | | refused: `engine.quantization: fp8` makes the same of a checkpoint in bfloat16 |
| MXFP4 (gpt-oss) | | put into bfloat16 where there are no kernels for it |

1. As transformers' own forward. The kernel for CPUs has weights in bfloat16 whatever the model is in, and is compiled
   at the first load, in a minute.
2. Weights are unpacked at load: it takes the memory of the whole model.
3. Rounding to 8 bits may go either way by the last bit of a sum, so that it is counted and not proved.
"""
_TOKENIZERS = """## Tokenizers

Of each kind a tiny one is trained: texts come back as they were, a value ends with its line whatever tokens hold the
line break, typed values are of their type, and the engine writes what the oracle does
(`tests/core/sweep/test_tokenizers.py`). Kinds: byte-level BPE as GPT-2, Llama 3, GPT-OSS, Kimi and Qwen split;
SentencePiece's unigram and BPE (Llama 2, Mistral, Phi 3, Gemma); NFC, NFKC and lowercase. A tokenizer that changes
letters cannot write some members of enums: those are not constrained.
"""
_LENGTHS = """## How long texts may be

As `max_position_embeddings` says. Rotary embeddings that change with the length of a text (`longrope`: Phi 3, Phi 4
mini; `dynamic`) are decoded up to `original_max_position_embeddings`. A record that needs more is an error of its own.
"""
_RUN = """## How they are run

A type that is not named here runs by transformers' own code; its attention goes through transformers' interface to
ours, and keys and values are cached.

| types of the text | layers | kept beside keys and values |
|---|---|---|
"""
_EXACT = "Exact in both layouts"
_LIMITED = "Exact up to a length, refused beyond"
_TREE = "Exact in `tree`"
_REFUSED = "Refused"
_UNKNOWN = "Not built here"
_SUBJECT = re.compile(r"^[\w.-]+ (has layers|models)")
"""What a reason begins with that is the same for several types but for their names."""
_SUBJECTS = {"has layers": "has layers", "models": "such models"}
_ABOUT = {
    _LIMITED: "Each token attends to tokens that the model picks, so many at most. A longer record is an error of its "
    "own.",
    _UNKNOWN: "The sweep has no tiny model of them: a checkpoint is tried at load like any other, and refused with the "
    "reason if it is not decoded as its own forward predicts.",
}
_NO_ORACLE = "the model's own forward takes no mask by position, so that `stacked` is compared with nothing"


def _groups(record: Record) -> dict[str, dict[str, list[Outcome]]]:
    found: dict[str, dict[str, list[Outcome]]] = {title: {} for title in (_EXACT, _LIMITED, _TREE, _REFUSED, _UNKNOWN)}
    for name, rows in record.by_type.items():
        kinds = {(row.layout, row.reach): row.kind for row in rows}
        tree = kinds["tree", "tight"], kinds["tree", "loose"]
        if set(kinds.values()) == {"exact"}:
            title = _EXACT
        elif tree == ("exact", "exact"):
            title = _TREE
        elif tree == ("refused", "exact"):
            title = _LIMITED
        elif "not built" in tree:
            title = _UNKNOWN
        else:
            title = _REFUSED
        found[title][name] = rows
    return {title: types for title, types in found.items() if types}


def _ways() -> Iterator[str]:
    """A line for each way in which families of the table are run."""
    ways: dict[tuple[str, ...], list[str]] = {}
    for name, family in FAMILIES.items():
        if not family.refused:
            ways.setdefault(_way(family), []).append(name)
    return (f"| {_names(found)} | {' | '.join(way)} |" for way, found in ways.items())


def _way(family: Family) -> tuple[str, str]:
    layers = "ours, where weights are not quantized" if family.our_layers else "transformers'"
    kinds = {name: kind for kind in family.mixers.values() for name in (*kind.functions, *kind.methods)}
    return layers, f"states; replaced are {_names(kinds)}" if kinds else ""


def _shown(reason: str) -> str:
    without_name = _SUBJECT.sub(lambda found: _SUBJECTS[found[1]], reason.removeprefix("ModelError: "))
    return without_name.replace("|", "\\|")


def _by_reason(types: dict[str, list[Outcome]]) -> Iterator[str]:
    """A line for each reason, for types that have the same but for their names."""
    names: dict[str, list[str]] = {}
    for name, rows in types.items():
        reasons = (_NO_ORACLE if row.kind == "no oracle" else row.reason for row in rows if row.kind != "exact")
        names.setdefault("; ".join(dict.fromkeys(map(_shown, reasons))), []).append(name)
    for reason, found in sorted(names.items(), key=lambda pair: -len(pair[1])):
        yield f"| {_names(found)} | {reason} |"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def main() -> None:
    """Writes the page, or compares it."""
    text = page(Record.read())
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.exists() and PAGE.read_text("utf-8") == text else f"{PAGE} is not what was found")
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
