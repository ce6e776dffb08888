"""From what a pilot measured to hours and dollars."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.config.operation import ActorConfig, CostConfig
from pipelines.errors import UsageError
from pipelines.job.prices import price_table
from pipelines.reporting.forecast import Interval, Price, deadlines
from pipelines.reporting.machines import (
    assumed_seconds,
    find_gpu,
    gpu_table,
    is_same_gpu,
    planned_price,
    rate_text,
    share_in_fp8,
    work_per_row,
)
from tests.examples import examples
from tests.pipelines.reporting.forecasts import forecast, job


def test_the_price_by_hand() -> None:
    found = forecast()
    assert found.fixed_hours == pytest.approx(8 * 0.1)
    assert found.billed_hours == Interval(*map(pytest.approx, (80.8, 70.8, 90.8)))
    assert found.wall_hours.estimate == pytest.approx(10.1)
    assert found.usd is not None
    assert found.usd.estimate == pytest.approx(242.4)
    assert found.usd_per_1k is not None
    assert found.usd_per_1k.high == pytest.approx(0.2724)
    half_dead = forecast(dead_rows=500_000).usd_per_1k
    assert half_dead is not None
    assert half_dead.estimate == pytest.approx(2 * 0.2424), "of those that can be extracted"


@settings(max_examples=examples(100))
@given(st.floats(0.01, 1e5), st.floats(0.2, 1000), st.floats(0.1, 1.0))
def test_the_engines_for_a_deadline_meet_it_and_one_less_would_not(
    work: float, hours: float, utilisation: float
) -> None:
    plan = forecast(work_hours=Interval(work, work, work), utilisation=utilisation)
    (found,) = deadlines(plan, [hours])
    assert found.engines is not None
    assert replace(plan, engines=found.engines).wall_hours.estimate <= hours * (1 + 1e-6)
    if found.engines > 1:
        assert replace(plan, engines=found.engines - 1).wall_hours.estimate > hours * (1 - 1e-6)


# Machines.


def test_the_price_is_the_configurations_else_what_was_billed() -> None:
    metrics = [{"price_per_hour": 1.5, "price_source": "table", "instance_type": "i", "market": "spot"}]
    assert planned_price(job(), metrics) == Price(1.5, "table", "i", "spot", 16)
    assert planned_price(job(), []) == Price(None, None, None, None, 16)
    node = price_table()["g6e.48xlarge"]
    assert node.spot is not None
    spot = planned_price(job(instance_type="g6e.48xlarge", market="spot"), metrics)
    assert (spot.usd_per_hour, spot.engines_per_node) == (pytest.approx(node.spot / 8), 8)
    dear = planned_price(job(instance_type="g6e.48xlarge"), metrics)
    assert (dear.market, dear.usd_per_hour) == ("on-demand", pytest.approx(node.on_demand / 8))  # type: ignore[operator]
    unknown = planned_price(job(instance_type="mine"), metrics)
    assert (unknown.usd_per_hour, unknown.instance_type) == (None, "mine")
    own = planned_price(job(instance_type="mine", usd_per_hour=32.0), metrics)
    assert own.usd_per_hour == pytest.approx(2.0), "a machine without GPUs is shared by actors.max engines"
    auto = job(instance_type="g6e.48xlarge").model_copy(update={"actors": ActorConfig()})
    assert auto.actors.most(planned_price(auto, []).engines_per_node) == 8, "a whole machine"
    on_gpus = [{"gpu_type": "NVIDIA X", "node_share": 0.125}]
    assert planned_price(job(usd_per_hour=32.0), on_gpus).usd_per_hour == pytest.approx(4.0), (
        "as the pilot's engine was"
    )
    empty = planned_price(job(instance_type="p5e.48xlarge", market="on-demand"), metrics)
    assert empty.usd_per_hour is None, "an empty cell of the table is not guessed"
    assert CostConfig().instance_type is None


def test_work_on_a_machine_that_was_not_measured() -> None:
    size = {"layer_parameters": 8_000_000_000, "head_parameters": 500_000_000, "weight_bytes": 17_000_000_000}
    tokens = {"document": 200.0, "key": 60.0, "value": 40.0}
    work = work_per_row(job(), {"model_size": size}, tokens)
    assert work.flops == pytest.approx(2 * 8e9 * 300 + 2 * 5e8 * 40)
    scored = work_per_row(job(), {"model_size": size}, tokens | {"scored": 50.0})
    assert scored.flops == pytest.approx(work.flops + 2 * (8e9 + 5e8) * 50)
    gpu = find_gpu("g6e.48xlarge")
    assert gpu.name == "L40S"
    assert assumed_seconds(work, gpu, 0.5) == pytest.approx(work.flops / 181e12)
    small_steps = replace(work, steps=1.0)
    assert assumed_seconds(small_steps, gpu, 0.5) == pytest.approx(17e9 / 432e9), "then the weights take longer"
    assert is_same_gpu(gpu.name, "NVIDIA L40S")
    in_fp8 = work_per_row(job(), {"model_size": size, "quantization": "fp8"}, tokens)
    assert (in_fp8.fp8_flops, in_fp8.flops) == (pytest.approx(2 * 8e9 * 300), pytest.approx(2 * 5e8 * 40))
    expected = (in_fp8.fp8_flops / 733e12 + in_fp8.flops / 362e12) / 0.5
    assert assumed_seconds(in_fp8, gpu, 0.5) == pytest.approx(expected), "the head's are not in FP8"
    assert rate_text(work, gpu) == "362 TFLOP/s"
    assert rate_text(in_fp8, gpu) == "362 TFLOP/s (the layers' at 733, FP8)"
    of_hybrid = work_per_row(job(), {"model_size": size | {"state_operations": 1_000_000_000}}, tokens)
    assert of_hybrid.state_flops == pytest.approx(1e9 * 300)
    expected = (work.flops / 362e12 + 3e11 / 91.6e12) / 0.5
    assert assumed_seconds(of_hybrid, gpu, 0.5) == pytest.approx(expected), "states are in fp32"
    assert rate_text(of_hybrid, gpu) == "362 TFLOP/s (states' at 92, fp32)"
    assert share_in_fp8(work, gpu) == pytest.approx(362 / 733)
    assert (share_in_fp8(in_fp8, gpu), share_in_fp8(work, gpu_table()["A100"])) == (1.0, 1.0)
    in_fp32 = work_per_row(job(), {"model_size": size, "dtype": "float32"}, tokens)
    assert in_fp32.weight_bytes == work.weight_bytes / 2, "on a GPU it is in 16 bits"
    with pytest.raises(UsageError, match=r"weights take 141 GB, which .* 48 GB of one L40S .* fp8, which halves them"):
        assumed_seconds(replace(work, weight_bytes=141e9), gpu, 0.5)
    with pytest.raises(UsageError, match="A100 has no FP8; name a machine that has"):
        assumed_seconds(in_fp8, gpu_table()["A100"], 0.5)
    assert not is_same_gpu("L4", "NVIDIA L40S")
    assert is_same_gpu("A100", "NVIDIA A100-SXM4-40GB")
    assert is_same_gpu("RTX PRO Server 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition")
    with pytest.raises(UsageError, match="only decoding: hpd"):
        work_per_row(job().model_copy(update={"decoding": "ar"}), {"model_size": size}, tokens)
    with pytest.raises(UsageError, match="how large its model is"):
        work_per_row(job(), {}, tokens)
    with pytest.raises(UsageError, match=r"--on g9\.large: no such machine"):
        find_gpu("g9.large")
    assert {price.gpu for price in price_table().values()} - set(gpu_table()) == {"RTX PRO Server 6000"}
