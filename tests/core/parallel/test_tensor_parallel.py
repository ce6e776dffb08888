"""A model that is cut between processes answers as the whole one; real processes, gloo, on a CPU."""

from __future__ import annotations

import copy
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

from hpd_core import Engine, EngineError, ModelError
from hpd_core.parallel import ranks
from hpd_core.parallel.tensor_parallel import cut, plan_cuts
from tests.core.engines import TIMEOUT, answers, config
from tests.core.families import build_model
from tests.core.products import SCHEMAS, products
from tests.tiny_model import answering_model, answering_tokenizer, build_tiny_model

CUTTABLE = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "granite", "gpt_neox")
REFUSED = {"phi3": "rowwise_split_input", "olmo2": "rowwise_split_input", "qwen3_moe": "moe_tp_experts"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_tiny_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Every test ends its processes and leaves its group."""
    threads = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == threads
    assert not _followers()
    assert not dist.is_initialized()


def _followers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it ends as it is looked at
            if "hpd_core.parallel.ranks" in " ".join(child.cmdline()):
                found.append(child)
    return found


def _save(model: Any, tokenizer: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def _answers(model: str, adapter: str | None = None, **options: Any) -> list[Any]:
    with Engine.from_pretrained(model, config(**options), adapter) as engine:
        return answers(engine.extract(products(20), SCHEMAS))


@pytest.mark.parametrize(
    "reading",
    [
        {"layout": "tree", "strings": "verbatim"},
        {"layout": "stacked"},
        pytest.param({"document_attention": "bidirectional"}, marks=pytest.mark.full),
    ],
)
def test_answers_are_those_of_the_whole_model(tiny: str, reading: dict[str, Any]) -> None:
    expected = _answers(tiny, **reading)
    assert len({answer for record in expected for answer in record}) > 10
    small: dict[str, Any] = {
        "max_tokens_per_step": 64,
        "max_prompts_per_cohort": 3,
    }  # many steps, merges, waiting prompts
    assert _answers(tiny, **reading, tensor_parallel=2, **small) == expected


class Sum:
    """all_reduce for ranks that are threads of this process: a process for each of many families takes minutes."""

    def __init__(self, size: int) -> None:
        self._parts: list[torch.Tensor] = []
        self._barrier = threading.Barrier(size)

    def __call__(self, part: torch.Tensor) -> None:
        self._parts.append(part)
        self._barrier.wait(TIMEOUT)
        whole = sum(each.clone() for each in self._parts)
        self._barrier.wait(TIMEOUT)
        part.copy_(whole)
        if self._barrier.wait(TIMEOUT) == 0:
            self._parts.clear()
        self._barrier.wait(TIMEOUT)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("family", CUTTABLE)
def test_families(family: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cuts its layers in its own way: biases, norms, fused projections, softcap."""
    model = build_model(family)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # they begin as zeros
            torch.nn.init.normal_(parameter, std=0.3)
    ids = torch.arange(3, 43)[None]
    with torch.inference_mode():
        expected = model(input_ids=ids, use_cache=False).logits
    parts = [copy.deepcopy(model) for _ in range(size)]
    for rank, part in enumerate(parts):
        cut(part, rank, size)
    monkeypatch.setattr(dist, "all_reduce", Sum(size))
    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(lambda part: _logits(part, ids), parts))
    for logits in found:
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-3)
    numbers = [
        sum(p.numel() for name, p in part.named_parameters() if ".layers." in name) for part in (model, parts[0])
    ]
    assert numbers[1] < numbers[0] / size * 1.1  # norms are whole


def _logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=ids, use_cache=False).logits


@pytest.mark.parametrize("during_work", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_rank_that_dies_ends_the_engine(
    folder_for_three: str, during_work: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three, so that one is left that waits for the dead one, as rank 0 does."""
    monkeypatch.setattr(ranks, "_NOTICE_SECONDS", TIMEOUT)  # who saw it die may not be run for long
    with Engine.from_pretrained(folder_for_three, config(tensor_parallel=3, max_tokens_per_step=16)) as engine:
        future, stepping, killed = None, threading.Event(), threading.Event()
        if during_work:
            forward = engine._decoder._forward

            def held(*given: Any) -> Any:
                """The others are in the step, and wait for rank 0, when one of them dies."""
                stepping.set()
                assert killed.wait(TIMEOUT)
                return forward(*given)

            monkeypatch.setattr(engine._decoder, "_forward", held)
            future = engine.submit(products(3), SCHEMAS)
            assert stepping.wait(TIMEOUT)
        assert engine._group is not None
        assert engine._group._followers is not None
        os.kill(engine._group._followers._processes[1].pid, signal.SIGKILL)
        killed.set()
        for _ in range(2):
            with pytest.raises(EngineError, match=r"rank 2 .* died \(exit code -9\); load the engine anew"):
                (future or engine.submit(products(3), SCHEMAS)).result(TIMEOUT)
            future = None
    if not during_work:
        assert len(_answers(folder_for_three, tensor_parallel=3)) == 20  # and that works


@pytest.fixture(scope="module")
def folder_for_three(tmp_path_factory: pytest.TempPathFactory) -> str:
    tokenizer = answering_tokenizer()
    sizes = {"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 96, "intermediate_size": 96}
    return _save(answering_model(tokenizer, **sizes), tokenizer, tmp_path_factory.mktemp("three"))


@pytest.mark.full
def test_ranks_of_a_dead_leader_end(tiny: str) -> None:
    script = (
        "import sys, time; from hpd_core import Engine, EngineConfig; "
        f"Engine.from_pretrained({tiny!r}, EngineConfig(device='cpu', tensor_parallel=2)); print('up', flush=True); "
        "time.sleep(3600)"
    )
    leader = psutil.Popen([sys.executable, "-c", script], stdout=-1)
    assert leader.stdout.readline() == b"up\n"
    [follower] = leader.children()
    leader.kill()
    leader.wait()
    until = time.monotonic() + TIMEOUT
    with suppress(psutil.NoSuchProcess):  # reaped, as it is looked at
        while follower.is_running() and follower.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until, "it lives on"
            time.sleep(0.1)


@pytest.mark.parametrize("family", REFUSED)
def test_families_that_cannot_be_cut(family: str) -> None:
    with pytest.raises(ModelError, match=REFUSED[family]):
        plan_cuts(build_model(family), 2)


@pytest.mark.full
def test_a_cut_that_adds_up_to_something_else_is_found(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a plan that is wrong about a family: the parts are held against the whole."""
    monkeypatch.setattr(ranks, "cut", lambda model, rank, size: cut(model, 1, size))  # rank 0 takes the other's part
    with pytest.raises(ModelError, match="where an ordinary forward gives"):
        Engine.from_pretrained(tiny, config(tensor_parallel=2))
