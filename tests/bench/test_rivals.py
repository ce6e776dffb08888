"""The benchmark's rivals on a tiny model: each writes what plain greedy decoding writes, as much as it is timed for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from bench.rivals import continuous_batching
from bench.rivals.continuous_batching import run_continuous
from bench.rivals.generate import run_draft_model, run_generate, run_prompt_lookup
from bench.rivals.parallel_decoding import JacobiGuesser, NgramGuesser, decode, run_anpd, run_jacobi
from bench.rivals.vllm_requests import json_schema
from bench.speed.contenders import (
    ANPD,
    CONTINUOUS,
    DRAFT_MODEL,
    JACOBI,
    PROMPT_LOOKUP,
    VLLM_AR,
    VLLM_FAN_OUT,
    VLLM_SCHEMA,
    check_lengths,
    vllm_requests,
)
from bench.speed.token_agreement import (
    Question,
    compare_answers,
    natural_prompts,
    plain_weights,
    questions,
    tree_answers,
)
from bench.workloads.workload import ForcedRecord, Workload
from hpd_core import EngineConfig, PromptTemplate
from hpd_core.models import loading, steering
from hpd_core.models.weights import Weights
from hpd_core.text.template import single_header
from hpd_core.text.tokenization import SegmentTokenizer
from pipelines.errors import UsageError
from pipelines.labelling.teacher_prompts import json_schema as answer_schema
from tests.bench.test_benchmark import NUM_RECORDS, RIVALS, run
from tests.pipelines.conftest import Workplace, products
from tests.pipelines.job.test_adapter import make_adapter
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer, build_tokenizer

Answers = list[list[int]]


@pytest.fixture(scope="module")
def model() -> Any:
    return answering_model(answering_tokenizer())


@pytest.fixture(scope="module")
def small_model() -> Any:
    """Another model of the same tokens, to draft."""
    return answering_model(answering_tokenizer(), num_hidden_layers=1)


@pytest.fixture
def workload(workplace: Workplace) -> Workload:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    gold = workplace.folder / "gold.jsonl"
    rows = [{"product_id": row["id"], "category": row["category"], "values": {}} for row in products(NUM_RECORDS)]
    rows[3]["values"] = {"Weight": ["1250"]}
    rows[4]["values"] = {"Brand": ["Velor"], "Sizes": ["41", "42"]}
    gold.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    job = workplace.config()
    return Workload.of_gold(loading.load_tokenizer(job.model, job.engine), job, str(gold), None)


@torch.inference_mode()
def greedy(model: Any, prompt: Sequence[int], count: int, stop: list[int] | None = None) -> list[int]:
    """Plain greedy decoding, one prompt in a batch of its own."""
    ids = torch.tensor([prompt])
    options: dict[str, Any] = {"do_sample": False, "pad_token_id": 0, "eos_token_id": stop, "max_new_tokens": count}
    row: list[int] = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
    return row[len(prompt) :]


def continuous(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> Answers:
    seconds, answers = run_continuous(model, records, batch_size)
    assert seconds > 0
    return answers


@pytest.mark.parametrize(
    "rival", [run_generate, run_prompt_lookup, run_jacobi, run_anpd, continuous], ids=lambda rival: rival.__name__
)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_rival_writes_what_plain_greedy_decoding_writes(
    model: Any, workload: Workload, rival: Callable[..., Answers], batch_size: int
) -> None:
    records = workload.forced(model.config, EngineConfig())
    answers = rival(model, records, batch_size)
    assert answers == [greedy(model, record.trunk, record.answer_length) for record in records]
    assert len({len(answer) for answer in answers}) > 2, "lengths as the gold answers have them"
    check_lengths(answers, records)
    assert model.config._attn_implementation == "sdpa", "as it was"


def test_a_draft_model_changes_nothing_but_the_number_of_forwards(
    model: Any, small_model: Any, workload: Workload
) -> None:
    records = workload.forced(model.config, EngineConfig())
    expected = [greedy(model, record.trunk, record.answer_length) for record in records]
    assert run_draft_model(small_model, model, records, 1) == expected
    forwards = []
    handle = model.register_forward_hook(lambda *_: forwards.append(1))
    try:
        # Itself, who is always right.
        twin = answering_model(answering_tokenizer())
        twin.generation_config.eos_token_id = None
        twin.generation_config.assistant_confidence_threshold = 0.0
        assert run_draft_model(twin, model, records, 1) == expected
    finally:
        handle.remove()
    assert len(forwards) < sum(map(len, expected)) / 5


def test_other_lengths_than_asked_for_are_found(model: Any, workload: Workload) -> None:
    records = workload.forced(model.config, EngineConfig())
    answers = run_generate(model, records, 4)
    answers[-1].pop()
    with pytest.raises(RuntimeError, match="other lengths than it was asked for"):
        check_lengths(answers, records)


def sliding_window_model() -> Any:
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "initializer_range": 0.2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    config = MistralConfig(vocab_size=50, sliding_window=8, pad_token_id=0, eos_token_id=None, **sizes, **heads)
    return MistralForCausalLM(config).eval()


@table("make", [partial(answering_model, answering_tokenizer()), sliding_window_model])
@table("size", [1, 2, 5, 40])
@table("kind", [JacobiGuesser, NgramGuesser])
def test_guesses_of_any_length_are_lossless(make: Callable[[], Any], kind: Any, size: int) -> None:
    model = make()
    prompt = [7, 8, 9, 10, 7, 8, 9, 11, 7, 8]
    expected = greedy(model, prompt, 37)
    options = {"block": size} if kind is JacobiGuesser else {"draft": size}
    for count in (1, 2, 36, 37):
        assert decode(model, prompt, count, kind(prompt, **options)) == expected[:count]


class Counting(torch.nn.Module):
    """Says n + 1 behind the token n, whatever stands before; counts its forwards."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.config, self.device, self.num_tokens, self._model = model.config, model.device, [], model

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int, **options: Any) -> Any:
        output = self._model(input_ids=input_ids, logits_to_keep=logits_to_keep, **options)
        self.num_tokens.append(input_ids.shape[1])
        following = (input_ids[:, -logits_to_keep:] + 1) % self.config.vocab_size
        output.logits = torch.nn.functional.one_hot(following, self.config.vocab_size).float()
        return output


def test_jacobi_forwards_what_is_not_fixed_yet(model: Any) -> None:
    counting = Counting(model)
    assert decode(counting, [1, 2, 3], 8, JacobiGuesser([1, 2, 3], block=4)) == [4, 5, 6, 7, 8, 9, 10, 11]
    # Copies of the last token are wrong, and what is said behind them, too: one token a forward, of a block that ends.
    assert counting.num_tokens == [3 + 3, 3, 2, 1, 4, 3, 2, 1]


def test_ngrams_of_the_prompt_and_of_the_answer_are_guessed(model: Any) -> None:
    counting = Counting(model)
    prompt = [5, 6, 7, 8, 9, 20, 4]
    guesser = NgramGuesser(prompt, levels=(3, 2), draft=3)
    assert decode(counting, prompt, 7, guesser) == [5, 6, 7, 8, 9, 10, 11]
    # Nothing stood behind 4; 6, 7 and 8 behind 5, all right; 20 behind 9, wrong; nothing behind 10.
    assert counting.num_tokens == [7, 4, 2, 1]
    assert guesser.guess(10) == [], "11 was never seen before"
    guesser.learn([5, 6], [])
    assert guesser.guess(2) == [7, 8], "no more than there is room for"
    longer = NgramGuesser([1, 2, 3, 9, 2, 4, 9, 2, 4, 1, 2])
    assert longer.guess(1) == [3], "of what stood behind 1 2, although 4 is more frequent behind 2"


@pytest.mark.full
def test_on_request_everybody_runs(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    drafts = workplace.folder / "draft"
    tokenizer = answering_tokenizer()
    answering_model(tokenizer, num_hidden_layers=1).save_pretrained(drafts)
    tokenizer.save_pretrained(drafts)
    result = run(workplace, "--all", "--limit", "3", "--draft-model", str(drafts))
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    on_request = {PROMPT_LOOKUP, DRAFT_MODEL, CONTINUOUS, JACOBI, ANPD}
    assert on_request < set(facts["seconds"])
    assert {"transformers generate", "tree", "ceiling"} < set(facts["seconds"])
    assert set(facts["notes"]) == on_request | {"floor"}
    for name in on_request - {CONTINUOUS}:
        assert facts["notes"][name].startswith("one product at a time")
        assert " forwards wrote " in facts["notes"][name]
    assert f"{JACOBI}: {facts['notes'][JACOBI]}." in " ".join(result.stdout.split())

    alone = run(workplace, "--only", ANPD, "--limit", "3")
    assert set(json.loads(alone.stdout.splitlines()[-1])["seconds"]) == {ANPD, "tree", "ceiling", "floor"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "vLLM AR"], "--only 'vLLM AR' needs --vllm"),
        (["--only", DRAFT_MODEL], "--only 'generate, draft model' needs --draft-model"),
        (["--only", ANPD, "--all"], "--only and --all exclude each other"),
        (["--compare-answers"], "--compare-answers needs --vllm"),
        (["--vllm", "python", "--set", "engine.quantization=nf4"], "--vllm runs the weights as they are stored"),
        (["--draft-model", "/nowhere"], "cannot load the model '/nowhere'"),
    ],
)
def test_what_cannot_run_is_an_error(workplace: Workplace, arguments: list[str], message: str) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    result = run(workplace, *arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: {message}")


def test_a_draft_model_of_other_tokens_is_an_error(workplace: Workplace, tmp_path: Path) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    tokenizer = build_tokenizer()
    tokenizer.add_tokens([" violet,\n"])
    tokenizer.save_pretrained(tmp_path / "other")
    result = run(workplace, "--draft-model", str(tmp_path / "other"))
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: --draft-model {tmp_path / 'other'}: its tokens are not")


@table("page", ["page_size", "block_size"])
def test_a_page_of_continuous_batching_is_called_as_transformers_calls_it(
    page: str, monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    names = [page, "num_blocks", "max_batch_tokens", "max_requests_per_batch"]
    config = make_dataclass("ContinuousBatchingConfig", [(name, int) for name in names])
    monkeypatch.setattr(continuous_batching, "ContinuousBatchingConfig", config)
    found = continuous_batching._config(model, 100, 4)
    assert [getattr(found, name) for name in names] == [32, 2 * 4 * 5, 2048, 4]


def test_a_model_that_continuous_batching_does_not_take_is_an_error(model: Any, workload: Workload) -> None:
    records = workload.forced(model.config, EngineConfig())
    steering.attach(model)
    with pytest.raises(
        UsageError, match=r"continuous batching does not run with this model here: (Implementation|Specified)"
    ):
        run_continuous(model, records, 4)
    steering.use_own_attention(model)


# What vLLM is asked.


def test_short_keys_are_for_those_who_are_given_keys(model: Any, workload: Workload) -> None:
    config = EngineConfig(max_value_tokens=7)
    short = config.model_copy(update={"prompt": PromptTemplate(keys="short")})
    asked, asked_short = (vllm_requests(model, workload, each) for each in (config, short))
    assert asked[VLLM_AR] == asked_short[VLLM_AR]
    assert asked[VLLM_SCHEMA] == asked_short[VLLM_SCHEMA]
    assert asked[VLLM_FAN_OUT].limits == asked_short[VLLM_FAN_OUT].limits
    prompts = zip(asked[VLLM_FAN_OUT].prompts, asked_short[VLLM_FAN_OUT].prompts, strict=True)
    assert all(len(one) < len(other) for other, one in prompts)
    prepared = [item.layout for item in workload.prompts(model.config, short)]
    assert [record.layout.num_key_tokens for record in workload.forced(model.config, short)] == [
        layout.num_key_tokens for layout in prepared
    ], "the naive one forwards what tree forwards"


def test_a_schema_begins_with_the_brace_and_asks_for_every_key_in_order(model: Any, workload: Workload) -> None:
    asked = json_schema(workload, model.config, EngineConfig(max_value_tokens=7))
    forced = workload.forced(model.config, EngineConfig())
    opening = SegmentTokenizer(workload.tokenizer).encode_trusted(single_header())
    assert [prompt + opening for prompt in asked.prompts] == [record.trunk for record in forced]
    for number, record in enumerate(forced):
        shape = asked.schemas[asked.schema_of[number]]
        assert len(shape["properties"]) == len(record.lengths)
        expected = len(opening) + record.layout.num_key_tokens + 7 * len(record.lengths) + 1
        assert asked.limits[number] == expected
    by_keys = {tuple(shape["properties"]): shape for shape in asked.schemas}
    assert set(by_keys) == {("Brand", "Colour", "Sizes"), ("Brand", "Weight")}
    for category in ("Shoes", "Coffee"):
        shape = answer_schema(workload.schemas[category])
        assert by_keys[tuple(shape["properties"])] == shape
        assert shape["required"] == list(shape["properties"])


# The same values from two engines.


@pytest.fixture
def compared(model: Any, workload: Workload) -> tuple[list[Question], Answers, Answers]:
    """What is asked, what `tree` answers, and what plain transformers answers."""
    config = EngineConfig(max_value_tokens=6)
    prepared = natural_prompts(model, workload, config)
    asked = questions(prepared, workload)
    endings = workload.endings(model)
    stop = endings.closing.nonzero()[0].tolist()
    theirs = [greedy(model, question.prompt, question.limit, stop) for question in asked]
    steering.attach(model)
    try:
        ours = tree_answers(model, prepared, endings.at_line_ends(), config)
    finally:
        steering.use_own_attention(model)
    return asked, ours, theirs


def test_tree_writes_what_plain_transformers_writes(
    model: Any, workload: Workload, compared: tuple[list[Question], Answers, Answers]
) -> None:
    asked, ours, theirs = compared
    assert len(asked) == sum(len(workload.schemas[record.category].attributes) for record in workload.records)
    assert len({len(answer) for answer in ours}) > 2, "values end by themselves, and some do not"

    def oracle() -> Any:
        raise AssertionError("nobody disagrees")

    found = compare_answers(asked, ours, theirs, oracle, workload.tokenizer)
    assert (found.num_values, found.num_identical, found.differences) == (len(asked), len(asked), [])


def test_a_difference_has_its_texts_and_its_margin(
    model: Any, workload: Workload, compared: tuple[list[Question], Answers, Answers]
) -> None:
    asked, ours, theirs = compared
    changed = next(number for number, answer in enumerate(ours) if len(answer) > 3)
    red = workload.tokenizer.convert_tokens_to_ids(' "red",\n')
    theirs[changed] = [*ours[changed][:2], red]
    shorter = next(number for number, answer in enumerate(ours) if len(answer) > 1 and number != changed)
    theirs[shorter] = ours[shorter][:-1]

    found = compare_answers(asked, ours, theirs, lambda: model, workload.tokenizer)
    assert (found.num_values, found.num_identical) == (len(asked), len(asked) - 2)
    by_kind = {item.margin is None: item for item in found.differences}
    item = by_kind[False]
    assert (item.product_id, item.attribute) == (asked[changed].product_id, asked[changed].attribute)
    assert item.position == 2
    assert item.theirs.endswith(' "red",\n')
    assert item.ours == workload.tokenizer.decode(ours[changed])
    with torch.inference_mode():
        scores = model(torch.tensor([asked[changed].prompt + ours[changed]])).logits[0].log_softmax(-1)
    row = scores[len(asked[changed].prompt) + 1]
    assert item.margin == pytest.approx(float(row[ours[changed][2]] - row[red]), abs=1e-4)
    assert item.margin > 0, "the fp32 model wrote ours"
    assert by_kind[True].position == len(ours[shorter]) - 1
    assert len(compare_answers(asked, ours, theirs, lambda: model, workload.tokenizer, max_shown=1).differences) == 1


def test_an_adapter_is_merged_for_every_engine(workplace: Workplace, workload: Workload, tiny_model_dir: Path) -> None:
    job = workplace.config(adapter=str(make_adapter(workplace.folder / "adapter", tiny_model_dir)))
    ids = torch.tensor([[7, 8, 9, 10]])
    with plain_weights(job, workload.tokenizer) as source, torch.inference_mode():
        merged = loading.load_model(source, job.engine)(ids).logits
        assert loading.load_tokenizer(source, job.engine).get_vocab() == workload.tokenizer.get_vocab()
        assert torch.allclose(merged, Weights.load(job.model, job.engine, job.adapter).model(ids).logits, atol=1e-5)
        assert not torch.allclose(merged, loading.load_model(job.model, job.engine)(ids).logits, atol=0.1)
    assert not Path(source).exists()
    with plain_weights(workplace.config(), workload.tokenizer) as source:
        assert source == str(tiny_model_dir)


@pytest.mark.skipif(not RIVALS.exists(), reason="no vLLM here; `make rivals` installs it")
def test_vllm_answers_by_schema_and_like_tree(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(4))
    settings = ("--vllm", str(RIVALS), "--limit", "4", "--set", "model=smollm2", "--set", "engine.dtype=bfloat16")
    result = run(workplace, *settings, "--only", "vLLM AR, JSON schema")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    assert set(facts["seconds"]) == {"vLLM AR, JSON schema", "tree", "ceiling", "floor"}
    assert " of 4 answers were cut at their limit" in facts["notes"]["vLLM AR, JSON schema"]

    result = run(workplace, *settings, "--compare-answers")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    assert facts["num_values"] == 10
    assert len(facts["differences"]) == facts["num_values"] - facts["num_identical"]
    assert all(abs(item["margin"]) < 0.5 for item in facts["differences"]), "rounding, nothing else"
