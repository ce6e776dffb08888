"""The configuration of `label.py`: one YAML file, checked before anything is asked or paid.

`LabelConfig` is the reference: every key, its default and what it means. Unknown keys are refused.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from hpd_core import EngineConfig, PromptTemplate
from hpd_core.plain_data import Section
from pipelines.config.catalog_input import InputConfig

# After the paper's Figure 9. Its rule to simplify words is left out: a student that copies can be held to the text.
TEACHER_INSTRUCTION = """\
You are an expert at extracting product details.

Consider the following product attributes:

{attributes}

Analyze the product below and extract all of the attributes specified above. Answer with one JSON object and nothing \
else: a key for each attribute (use the attribute name) and the extracted value.

The values:
- must be copied from the product text, in 4-5 words or less, a JSON list of such texts where the attribute is a list.
- must preserve names of characters, themes, brands, patterns, flavors if present.
- must retain all the different numbers and their standard units (e.g., counts, packs), without multiplying them \
together. Where the attribute is a number, write the number alone, in the unit that is asked for.
- must not use placeholders like '-' or 'n/a'.
- must be null if the value of an attribute is not explicitly described in the product text.

Product:
{documents}"""

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What decides the answers of AutoregressiveBaseline; the rest of the engine's keys are about speed or about HPD.
_DECODING_KEYS = ("max_value_tokens", "dtype", "attention", "quantization", "prompt")


class OpenAITeacherConfig(Section):
    """A teacher behind an OpenAI-compatible endpoint."""

    kind: Literal["openai"] = Field(description="this teacher")
    base_url: str = Field(description="up to and including /v1")
    model: str = Field(min_length=1, description="the model's name at the endpoint")
    api_key_env: str | None = Field(None, description="environment variable with the key; none: no key is sent")
    instruction: str = Field(TEACHER_INSTRUCTION, description="with {attributes} and {documents}, once each")
    system: str | None = Field(None, description="system message")
    json_mode: Literal["auto", "json_schema", "tool", "json_object", "off"] = Field(
        "auto",
        description="how an answer is held to its form: by a JSON schema, as the arguments of a tool, as any JSON "
        "object, or not at all; 'auto': the first of them that the endpoint does not refuse",
    )
    temperature: float | None = Field(0.0, ge=0, description="null: not sent, as some models demand")
    max_output_tokens: int = Field(1024, ge=1, description="limit of one answer, with its thoughts")
    token_limit_key: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="how the endpoint calls that limit"
    )
    request: dict[str, Any] = Field(default_factory=dict, description="further keys of the request, sent as they are")
    answer_attempts: int = Field(2, ge=1, description="times a product is asked before a useless answer rejects it")
    requests_per_minute: float | None = Field(None, gt=0, description="retries included")
    max_concurrency: int = Field(8, ge=1, description="products asked at the same time")
    timeout_seconds: float = Field(60.0, gt=0, description="for one request, from sending it to the whole answer")
    max_retries: int = Field(5, ge=0, description="of one request: timeout, no connection, 408, 409, 429, 5xx")
    price_per_million_input_tokens: float | None = Field(None, ge=0, description="in US dollars")
    price_per_million_output_tokens: float | None = Field(None, ge=0, description="in US dollars")
    max_cost_usd: float | None = Field(None, gt=0, description="over all sessions; needs both prices")

    @model_validator(mode="before")
    @classmethod
    def _refuse_keys_in_the_file(cls, data: Any) -> Any:
        # Here, where the message does not repeat the value: it may be a key.
        if isinstance(data, dict):
            name, url = data.get("api_key_env"), data.get("base_url")
            if name is not None and not (isinstance(name, str) and _VARIABLE_NAME.fullmatch(name)):
                raise ValueError(
                    "api_key_env is the name of an environment variable, such as OPENAI_API_KEY, never the key itself"
                )
            if isinstance(url, str) and "@" in urlsplit(url).netloc:
                raise ValueError("base_url must not hold a password; name an environment variable in api_key_env")
        return data

    @model_validator(mode="after")
    def _check(self) -> OpenAITeacherConfig:
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError("base_url must start with http:// or https:// and name a host")
        PromptTemplate(instruction=self.instruction)  # checks the placeholders
        has_prices = None not in (self.price_per_million_input_tokens, self.price_per_million_output_tokens)
        if self.max_cost_usd is not None and not has_prices:
            raise ValueError(
                "max_cost_usd needs price_per_million_input_tokens and price_per_million_output_tokens to count by"
            )
        return self

    def cost(self, input_tokens: int, output_tokens: int) -> float | None:
        """Return the cost in US dollars; None without prices."""
        if self.price_per_million_input_tokens is None or self.price_per_million_output_tokens is None:
            return None
        dollars = (
            input_tokens * self.price_per_million_input_tokens + output_tokens * self.price_per_million_output_tokens
        )
        return dollars / 1e6

    def result_config(self) -> dict[str, Any]:
        """Return what decides the labels. The address is excluded: a model may move, and each line names its own."""
        keys = ("kind", "model", "instruction", "system", "json_mode", "temperature", "max_output_tokens", "request")
        return self.model_dump(mode="json", include=set(keys))


class SelfTeacherConfig(Section):
    """The model itself, by ordinary autoregressive decoding (self-supervision)."""

    kind: Literal["self"] = Field(description="this teacher")
    model: str = Field("smollm2", min_length=1, description="hub id, local folder, or an embedded model's name")
    adapter: str | None = Field(None, description="peft adapter for it: local folder, any fsspec URI, or a hub id")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="how it decodes; the layout is ignored")

    def result_config(self) -> dict[str, Any]:
        """Return what decides the labels."""
        engine = self.engine.autoregressive().model_dump(mode="json", include=set(_DECODING_KEYS))
        return {"kind": self.kind, "model": self.model, "adapter": self.adapter, "engine": engine}


class LabelConfig(Section):
    """One labelling job."""

    input: InputConfig = Field(description="the catalog, as in the extraction job")
    schemas: str = Field(min_length=1, description="YAML file with the attributes of every category")
    output: str = Field(min_length=1, description="the gold file that is written: a local .jsonl path")
    teacher: Annotated[OpenAITeacherConfig | SelfTeacherConfig, Field(discriminator="kind", description="who answers")]
    sample: int | None = Field(None, ge=1, description="label this many rows, drawn at random, instead of all")
    seed: int = Field(0, description="of the sample; a larger sample with the same seed holds the smaller one")
    require_evidence: bool = Field(False, description="drop a text or number that does not stand in the product text")
    max_consecutive_failures: int = Field(10, ge=1, description="failed products in a row that stop the run")
    log_seconds: float = Field(10.0, gt=0, description="seconds between log lines without a terminal")

    @model_validator(mode="after")
    def _check_output(self) -> LabelConfig:
        if "://" in self.output:
            raise ValueError("output must be a local file: lines are appended to it, which object stores cannot")
        if not self.output.endswith(".jsonl"):
            raise ValueError(f"output must end with .jsonl (got {self.output!r})")
        return self
