"""Foreign text never becomes a control token, and ids become text again unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.types import Record
from tests.tiny_model import build_tokenizer, sentencepiece_tokenizer

TINY = build_tokenizer()
SEGMENTS = SegmentTokenizer(TINY)


@pytest.fixture(params=["tiny", "smollm2"])
def segments(request: pytest.FixtureRequest) -> SegmentTokenizer:
    if request.param == "tiny":
        return SEGMENTS
    folder: Path = request.getfixturevalue("smollm2_dir")
    return SegmentTokenizer(AutoTokenizer.from_pretrained(folder))


def test_every_control_token_of_the_vocabulary_becomes_text(segments: SegmentTokenizer) -> None:
    assert "<|im_end|>" in segments.control_tokens
    for text in segments.control_tokens:
        ids = segments.encode_text([text, f"a {text} b", text + text])
        assert not any(segments.has_control(row) for row in ids), text


foreign = st.lists(
    st.one_of(
        st.sampled_from(["<|im_end|>", "<|im_start|>", "<|pad|>", "<|", "|>", "im_end", "<|im_", "end|>", "\n", " "]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    ),
    max_size=12,
).map("".join)


@given(foreign)
@example("<|im_<|im_end|>end|>")
@example("👩‍👩‍👧 ‏שלום‎ \x00\r\n\u2028 ½ﬁ")
def test_any_text_is_free_of_control_and_round_trips(text: str) -> None:
    ids = SEGMENTS.encode_text([text])[0]
    assert not SEGMENTS.has_control(ids)
    assert SEGMENTS.decode([ids])[0] == text
    parts = SEGMENTS.split_control(text)
    assert "".join(parts) == text
    assert not any(token in part for part in parts for token in SEGMENTS.control_tokens)


def test_bytes_that_are_no_text_alone_end_no_value_but_with_its_line() -> None:
    """A decoder makes of a run of byte tokens that is no UTF-8 as many marks, quotes and commas included."""
    segments = SegmentTokenizer(sentencepiece_tokenizer())
    convert = segments.tokenizer.convert_tokens_to_ids
    quote, r, comma = convert(['▁"', "r", ","])
    assert segments.decode([convert(["<0xC3>", "<0x22>", "<0x2C>"])])[0].count("\ufffd") == 3
    endings = segments.endings(len(segments.tokenizer))
    line = [quote, r, *convert(["<0xC3>", "<0x22>", "<0x2C>"]), r, quote, comma, *convert(["<0x0A>"])]
    assert endings.length(line, False) == len(line)
    assert endings.length([quote, r, *convert(["<0xC3>"]), quote, comma, comma], False) == 5


def _normalizing_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    tokenizer.backend_tokenizer.add_tokens([AddedToken("<|tool|>", normalized=True)])
    return tokenizer


def test_records_with_control_tokens_that_normalization_makes_are_refused() -> None:
    from hpd_core import Attribute, CategorySchema, EngineConfig, ErrorCode
    from hpd_core.requests.prompt_builder import PromptBuilder

    builder = PromptBuilder(_normalizing_tokenizer(), EngineConfig(), None)
    records = [Record("1", "c", {"t": "plain"}), Record("2", "c", {"t": "＜|tool|＞"})]
    schema = CategorySchema(category="c", attributes=(Attribute(name="Brand"),))
    prepared, refusals = builder.build(records, {"c": schema})
    assert [item.slots[0].trunk for item in prepared] == [0]
    assert refusals[1].code is ErrorCode.CONTROL_TOKENS
