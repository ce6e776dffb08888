"""Asks a server by libraries that people use; run by the Python that has them.

    python other_clients.py instructor http://127.0.0.1:8000/v1 MODEL

Prints what came back as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def ask_instructor(address: str, model: str) -> Any:
    """A form by each of instructor's ways, the way -> what it filled in; "partial": the last of a stream."""
    import instructor
    import openai
    from pydantic import BaseModel, Field

    class Buyer(BaseModel):
        name: str | None
        town: str | None = Field(description="without the country")

    class Order(BaseModel):
        """An order."""

        buyer: Buyer
        pieces: int | None
        is_urgent: bool | None

    text = [{"role": "user", "content": "Order of Ada Lovelace, London: 12 pieces, urgent."}]
    raw = openai.OpenAI(base_url=address, api_key="any")
    answers: dict[str, Any] = {}
    for mode in ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA", "RESPONSES_TOOLS"):
        client = instructor.from_openai(raw, mode=instructor.Mode[mode])
        order = client.chat.completions.create(model=model, response_model=Order, messages=text, max_retries=0)
        answers[mode] = order.model_dump()
    client = instructor.from_openai(raw)
    *_, last = client.chat.completions.create_partial(model=model, response_model=Order, messages=text)
    answers["partial"] = last.model_dump()
    _, completion = client.chat.completions.create_with_completion(model=model, response_model=Order, messages=text)
    answers["paths"] = [field["path"] for field in completion.hpd["fields"]]
    return answers


def ask_langextract(address: str, model: str) -> Any:
    """The classes and texts that were found."""
    import langextract as lx

    example = lx.data.ExampleData(
        text="ROMEO. But soft!",
        extractions=[lx.data.Extraction("character", "ROMEO", attributes={"mood": "wonder"})],
    )
    found = lx.extract(
        text_or_documents="Juliet gazed at the stars.",
        prompt_description="Characters and their moods.",
        examples=[example],
        config=lx.factory.ModelConfig(
            model_id=model,
            provider="OpenAILanguageModel",
            provider_kwargs={"base_url": address, "api_key": "any"},
        ),
        use_schema_constraints=True,
        resolver_params={"suppress_parse_errors": False},
        show_progress=False,
    )
    return [(each.extraction_class, each.extraction_text) for each in found.extractions or []]


if __name__ == "__main__":
    ask = {"instructor": ask_instructor, "langextract": ask_langextract}[sys.argv[1]]
    print(json.dumps(ask(*sys.argv[2:])))
