"""Settings of the engine. Unknown keys are an error, never ignored."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hpd_core.plain_data import Section
from hpd_core.text.template import PromptTemplate

LayoutName = Literal["tree", "stacked"]
DTypeName = Literal["auto", "float32", "bfloat16", "float16"]
Strings = Literal["free", "verbatim"]
Numbers = Literal["free", "stated"]
DocumentAttention = Literal["causal", "bidirectional"]
Quantization = Literal["nf4", "int8", "fp8"]
AutoCount = Annotated[int, Field(ge=1)] | Literal["auto"]
"""Number >= 1, or "auto": the number that fits the device (decoding/memory.py: `Limits`)."""


class EngineConfig(Section):
    """Settings of decoding. Every field has a default that works on a laptop."""

    layout: LayoutName = Field("tree", description="'tree' (ours, exact per product) or 'stacked' (the paper's)")
    document_attention: Literal["auto"] | DocumentAttention = Field(
        "auto",
        description="what a document's tokens see of each other. 'causal': those before them, as models are made; "
        "'bidirectional': all, up to the first key, for models that were fine-tuned so with the layout 'tree'. "
        "What stands before them, keys and values are causal in any case; each document is forwarded in one step, and "
        "shares no text. 'auto': as the adapter or the model was trained, by its hpd.json, else causal",
    )
    max_value_tokens: int = Field(30, ge=1, description="K_max: the most tokens a value may take")
    stack_size: int = Field(6, ge=1, description="J: documents of one category in one prompt ('stacked' only)")
    max_tokens_per_step: AutoCount = Field(
        "auto",
        description="tokens forwarded in one step, prefill and decode; 'auto': 16,384 on a GPU, fewer where its memory "
        "does not hold them, 4,096 on a CPU",
    )
    max_prompts_per_cohort: AutoCount = Field(
        "auto",
        description="prompts that are admitted and attend together ('ar': are generated together); 'auto': 128 on a "
        "GPU, fewer where its memory is small, 32 on a CPU",
    )
    max_cached_tokens: AutoCount = Field(
        "auto",
        description="KV cache slots that prompts take before others wait; 'auto': those of 64 steps, fewer where the "
        "memory that is free beside a step does not hold them",
    )
    max_cached_prefixes: int = Field(64, ge=1, description="category prefixes whose KV is kept (LRU)")
    dtype: DTypeName = Field("auto", description="'auto': bfloat16 where the hardware is faster in it, else float32")
    device: str = Field("auto", description="'auto': cuda if there is one, else cpu")
    attention: Literal["auto", "native", "eager", "triton"] = Field(
        "auto",
        description="'native': a kernel in C++ for CPUs, which g++ must be there to compile; 'eager': matrix products; "
        "'triton': a kernel of ours for GPUs; 'auto': triton on a GPU, native on a CPU, eager where they cannot be had",
    )
    layers: Literal["auto", "native", "triton", "transformers"] = Field(
        "auto",
        description="whose code runs the layers of families that docs/models.md lists. 'native': ours for CPUs, with "
        "norms, rotary embedding and gates in C++; 'triton': ours for GPUs; 'transformers': the model's own, as for "
        "any other model; 'auto': as attention is, where it is ours, else transformers",
    )
    cuda_graphs: bool | Literal["auto"] = Field(
        "auto",
        description="steps of at most 1,024 tokens run on a GPU as CUDA graphs, which are captured when the model is "
        "loaded; 'auto': where layers are 'triton' and nothing speaks against it",
    )
    overlap_steps: bool | Literal["auto"] = Field(
        "auto",
        description="two steps at a time, so that the device has one while the host does what is to be done for the "
        "other; 'auto': on a GPU",
    )
    share_text: bool = Field(
        True,
        description="'tree': what documents of a category begin with alike, as variants of a product do, is computed "
        "once where documents are read causally; no answer depends on it",
    )
    constrain_values: bool = Field(
        True,
        description="numbers, booleans and enums are answered in their type or null, if the tokenizer can write it",
    )
    max_scored_tokens: int = Field(
        64,
        ge=0,
        description="'tree', where values are constrained: a boolean or enum (no list) is answered with the likeliest "
        "of its members and null, which is found by forwarding some of their tokens, at most so many, the likeliest "
        "ones; where these are too few, with the likeliest that was found, or, where a likelier one may be left, token "
        "by token. 0: it is decoded token by token, as other values are",
    )
    strings: Strings = Field(
        "free",
        description="'tree': what an attribute of the type string (no list) may be. 'free': any text; 'verbatim': what "
        "stands in the document, letter for letter, as if each had `verbatim: true`: chosen as a boolean or enum is",
    )
    numbers: Numbers = Field(
        "stated",
        description="'tree', where values are constrained: what a number with a unit (no list) may be in a job. "
        "'stated': one of the document's numbers whose unit converts into the attribute's, or, if there is none, of "
        "those without a unit: chosen as a boolean or enum is. 'free': any number",
    )
    answer_threshold: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="an extracted answer of a lower `probability` becomes null, and what is chosen among members "
        "(booleans, enums, stated numbers, verbatim strings) is a value where one comes up to this. Half of the F1 "
        "that is to be expected makes F1 highest; more makes up fewer values. null: only what the model says is null",
    )
    tensor_parallel: int = Field(
        1,
        ge=1,
        description="GPUs of one node that share every layer of a model which is too large for one; a process each",
    )
    quantization: Quantization | None = Field(
        None,
        description="'fp8': weights and activations of the layers' products in 8 bits, for GPUs that multiply them "
        "(L4, L40S, H100 and newer); a CPU emulates it, slowly. 'nf4', 'int8': bitsandbytes' weights, which save "
        "memory, not time. A checkpoint that is stored in FP8 is used so, whether asked or not",
    )
    trust_remote_code: bool = Field(False, description="run code that comes with a hub model")
    prompt: PromptTemplate = Field(default_factory=PromptTemplate, description="the prompt's texts")

    @model_validator(mode="after")
    def _check_what_trees_alone_can_do(self) -> Self:
        if self.reads_both_ways and self.layout != "tree":
            raise ValueError(
                f"document_attention 'bidirectional' is for the layout 'tree', not for {self.layout!r}: leave one of "
                "the two out"
            )
        if self.strings == "verbatim" and (problem := self.why_not_verbatim):
            raise ValueError(f"strings 'verbatim' {problem}")
        return self

    @property
    def why_not_verbatim(self) -> str | None:
        """Reason why values cannot be verbatim; None if they can."""
        if self.layout != "tree":
            return f"is for the layout 'tree', where no value sees another one, not for {self.layout!r}"
        return None if self.constrain_values else "is a constraint: set constrain_values to true"

    @property
    def chooses_numbers(self) -> bool:
        """Whether numbers are chosen among those of `Record.numbers`."""
        return self.numbers == "stated" and self.why_not_verbatim is None

    @property
    def reads_both_ways(self) -> bool:
        """Whether a document's tokens see each other both ways; False while the setting is still 'auto'."""
        return self.document_attention == "bidirectional"

    def autoregressive(self) -> Self:
        """Return a copy for autoregressive decoding of keys and values: one document a prompt, full keys."""
        prompt = self.prompt.model_copy(update={"keys": "full"})
        return self.model_copy(update={"layout": "tree", "prompt": prompt})
