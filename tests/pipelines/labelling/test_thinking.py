"""What a model thought is taken out, in the forms of all models that think aloud."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.labelling.thinking import without_thoughts
from tests.examples import examples
from tests.tables import table

TAGS = [
    ("<think>", "</think>"),
    ("<Thinking>", "</THINKING>"),
    ("<thought>", "</thinking>"),
    ("< think >", "</ think >"),
    ("<reasoning>", "</reasoning>"),
    ('<reasoning effort="high">', "</reasoning>"),
    ("<reflection>", "</reflection>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<analysis>", "</analysis>"),
    ("<chain_of_thought>", "</chain_of_thought>"),
    ("<inner_monologue>", "</inner_monologue>"),
    ("<antThinking>", "</antThinking>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<ifm|think_fast>", "</ifm|think_fast>"),
    ("<|think|>", "<|/think|>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("[unused16]", "[unused17]"),
    ('<details type="reasoning" done="true">', "</details>"),
    ("Here is my thought process:", "Here is my response:"),
]


@table(("opening", "closing"), TAGS)
def test_thoughts_between_tags(opening: str, closing: str) -> None:
    spoken, is_open = without_thoughts(f"Sure. {opening}Perhaps a draft?{closing}The answer.")
    assert (spoken.split(), is_open) == (["Sure.", "The", "answer."], False)
    spoken, is_open = without_thoughts(f"Sure. {opening}Perhaps a draft")
    assert (spoken.split(), is_open) == (["Sure."], True), "cut, or never closed"


@table(
    ("text", "spoken", "is_open"),
    [
        ("Perhaps a draft?</think>The answer.", "The answer.", False),
        ("a</think>b</think>The answer.", "The answer.", False),
        ("<think>a<think>b</think>c</think>The answer.", "The answer.", False),
        ("<think>a<think>b</think>c", "", True),
        ("<think>a<reflection>b</think>The answer.", "The answer.", False),
        ("<think></think><reflection>b</reflection>The answer.", "The answer.", False),
        ("<think>a</think>The answer.<think>b", "The answer.", True),
        ("The <b>answer</b> [1].", "The <b>answer</b> [1].", False),
        ("Think! I thought: a plan [draft 2]", "Think! I thought: a plan [draft 2]", False),
        # gpt-oss, with its marks and where the endpoint leaves them out
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>The answer.",
            "The answer.",
            False,
        ),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>b"
            "<|return|>",
            "b",
            False,
        ),
        ("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", "", True),
        ("<|channel|>analysis<|message|>a", "", True),
        ("analysisWe need a brand.assistantfinalThe answer.", "The answer.", False),
        ("analysisWe need a brand", "", True),
        ("to=self<|message|>a<|eom|><|start|>assistant to=user<|message|>The answer.<|eot|>", "The answer.", False),
    ],
)
def test_other_forms(text: str, spoken: str, is_open: bool) -> None:
    found, found_open = without_thoughts(text)
    assert (found.strip(), found_open) == (spoken, is_open)


def test_a_value_is_no_mark() -> None:
    text = 'Draft?</think>Here: {"Brand": "Kestrel [Draft]"}'
    whole = [(text.index("{"), len(text))]
    assert without_thoughts(text, whole) == ('Here: {"Brand": "Kestrel [Draft]"}', False)
    assert without_thoughts(text) == ('Here: {"Brand": "Kestrel ', True)
    channel = "<|channel|>final<|message|>"
    assert without_thoughts(channel + text, [(begin + len(channel), end + len(channel)) for begin, end in whole]) == (
        'Here: {"Brand": "Kestrel [Draft]"}',
        False,
    )


@given(st.lists(st.tuples(st.sampled_from(TAGS), st.text("ab {}", max_size=5)), max_size=4), st.text("xy ", max_size=9))
@settings(max_examples=examples(100))
def test_nothing_that_was_thought_is_spoken(thoughts: list[tuple[tuple[str, str], str]], answer: str) -> None:
    text = "".join(f"{opening}THOUGHT {words} {closing}" for (opening, closing), words in thoughts) + answer
    spoken, is_open = without_thoughts(text)
    assert (spoken.strip(), is_open) == (answer.strip(), False)
    deeper = text
    for (opening, closing), _ in thoughts:
        deeper = f"{opening}{deeper} {closing}"
    assert without_thoughts(deeper + "!")[0].strip() == ("!" if thoughts else f"{answer}!".strip())
