"""Asks a server by libraries that people use, each by all its ways; run by the Python that has them.

    python other_clients.py http://127.0.0.1:8000/v1 MODEL [LIBRARY ...]

Prints a row of JSON for each way: the library, its version, the way, and what went wrong or null.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, Field, field_validator


class Buyer(BaseModel):
    name: str | None
    town: str | None = Field(description="without the country")


class Order(BaseModel):
    """An order."""

    buyer: Buyer
    pieces: int | None
    is_urgent: bool | None


class Note(BaseModel):
    word: str
    remark: str | None = None


TEXT = "Order of Ada Lovelace, London: 12 pieces, urgent."
MESSAGES: Any = [{"role": "user", "content": TEXT}]
Ways = Iterator[tuple[str, Callable[[], Any]]]


def openai_ways(address: str, model: str) -> Ways:
    import openai

    client = openai.OpenAI(base_url=address, api_key="any", max_retries=0)
    asked = {"model": model, "messages": MESSAGES}
    schema = json.dumps(Order.model_json_schema())
    in_text: Any = [{"role": "system", "content": f"Answer with JSON by this schema:\n{schema}"}, *MESSAGES]
    tool = openai.pydantic_function_tool(Order)

    def streamed() -> Any:
        with client.chat.completions.stream(**asked, response_format=Order) as stream:
            return stream.get_final_completion().choices[0].message.parsed

    def plain() -> Any:
        shape: Any = {"type": "json_object"}
        done = client.chat.completions.create(model=model, messages=in_text, response_format=shape)
        return Order.model_validate_json(done.choices[0].message.content or "")

    def called() -> Any:
        done = client.chat.completions.parse(**asked, tools=[tool], tool_choice="required")
        return done.choices[0].message.tool_calls[0].function.parsed_arguments

    yield (
        "`chat.completions.parse`",
        lambda: client.chat.completions.parse(**asked, response_format=Order).choices[0].message.parsed,
    )
    yield "`chat.completions.stream`", streamed
    yield "a tool that must be called", called
    yield "`json_object` with the schema in the text", plain


def instructor_ways(address: str, model: str) -> Ways:
    import instructor
    import openai

    raw = openai.OpenAI(base_url=address, api_key="any", max_retries=0)

    def create(kind: Any, mode: str = "TOOLS", retries: int = 0) -> Any:
        client = instructor.from_openai(raw, mode=instructor.Mode[mode])
        return client.chat.completions.create(model=model, response_model=kind, messages=MESSAGES, max_retries=retries)

    def partial() -> Any:
        client = instructor.from_openai(raw)
        *_, last = client.chat.completions.create_partial(model=model, response_model=Order, messages=MESSAGES)
        return Order.model_validate(last.model_dump())

    def retried() -> Any:
        judged = []

        class Doubted(Order):
            @field_validator("pieces")
            @classmethod
            def twice(cls, pieces: int | None) -> int | None:
                judged.append(pieces)
                if len(judged) == 1:
                    raise ValueError("read once more")
                return pieces

        order = create(Doubted, retries=3)
        assert len(judged) == 2
        return order

    for mode in ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA", "JSON", "MD_JSON"):
        yield f"`{mode}`", lambda mode=mode: create(Order, mode)  # type: ignore[misc]
    yield "`create_partial`", partial
    yield "`Iterable` with a field that may be missing", lambda: list(create(list[Note]))
    yield "a retry after a validator", retried


def langchain_ways(address: str, model: str) -> Ways:
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    chat = ChatOpenAI(base_url=address, api_key=SecretStr("any"), model=model, max_retries=0)
    told = f"Answer with JSON by this schema: {json.dumps(Order.model_json_schema())}"
    texts = {"json_mode": [("system", told), ("user", TEXT)]}
    for method in ("function_calling", "json_schema", "json_mode"):
        asked = chat.with_structured_output(Order, method=method)  # type: ignore[arg-type]
        yield f"`{method}`", lambda asked=asked, method=method: asked.invoke(texts.get(method, TEXT))  # type: ignore[misc]


def pydantic_ai_ways(address: str, model: str) -> Ways:
    from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    asked = OpenAIChatModel(model, provider=OpenAIProvider(base_url=address, api_key="any"))
    for output in (ToolOutput, NativeOutput, PromptedOutput):
        agent = Agent(asked, output_type=output(Order), retries=0)
        yield f"`{output.__name__}`", lambda agent=agent: agent.run_sync(TEXT).output  # type: ignore[misc]


def litellm_ways(address: str, model: str) -> Ways:
    import litellm

    def complete(**shape: Any) -> Any:
        return litellm.completion(
            model=f"openai/{model}", api_base=address, api_key="any", messages=MESSAGES, num_retries=0, **shape
        )

    yield "`completion`", lambda: Order.model_validate_json(complete(response_format=Order).choices[0].message.content)


def langextract_ways(address: str, model: str) -> Ways:
    import langextract as lx

    example = lx.data.ExampleData(
        text="ROMEO. But soft!",
        extractions=[lx.data.Extraction("character", "ROMEO", attributes={"mood": "wonder"})],
    )
    known = {"base_url": address, "api_key": "any"}
    config = lx.factory.ModelConfig(model_id=model, provider="OpenAILanguageModel", provider_kwargs=known)

    def extract() -> Any:
        found = lx.extract(
            text_or_documents="Juliet gazed at the stars.",
            prompt_description="Characters and their moods.",
            examples=[example],
            config=config,
            use_schema_constraints=True,
            resolver_params={"suppress_parse_errors": False},
            show_progress=False,
        )
        assert found.extractions
        assert all(each.extraction_class == "character" for each in found.extractions)
        return found.extractions

    yield "`extract`, with schema constraints", extract


LIBRARIES: dict[str, Callable[[str, str], Ways]] = {
    "openai": openai_ways,
    "instructor": instructor_ways,
    "langchain-openai": langchain_ways,
    "pydantic-ai-slim": pydantic_ai_ways,
    "litellm": litellm_ways,
    "langextract": langextract_ways,
}


def problem(answer: Any) -> str | None:
    """What is wrong with an answer: none is what was asked for, or it is nothing."""
    items = answer if isinstance(answer, list) else [answer]
    wrong = [each for each in items if each is None or isinstance(each, str | dict)]
    return f"no answer of the asked type: {answer!r}" if wrong else None


def rows(address: str, model: str, libraries: list[str]) -> Iterator[tuple[str, str, str, str | None]]:
    for library in libraries:
        for way, ask in LIBRARIES[library](address, model):
            try:
                found = problem(ask())
            except Exception as error:  # whatever a library raises is what its user would see
                found = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            yield library, version(library), way, found


if __name__ == "__main__":
    for row in rows(sys.argv[1], sys.argv[2], sys.argv[3:] or list(LIBRARIES)):
        print(json.dumps(row), flush=True)
