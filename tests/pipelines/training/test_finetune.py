"""Whole fine-tunings of a tiny model, through the command and Ray Train."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from hpd_core import AutoregressiveBaseline, Engine, EngineConfig, Record
from pipelines.config.schema_file import load_schemas
from pipelines.errors import RunError, UsageError
from pipelines.store.folders import Folder
from pipelines.training import finetune_run, ray_training
from pipelines.training.labelled_products import is_held_out
from tests.pipelines.commands import ROOT, wait_until
from tests.pipelines.kills import Kill, KilledRun
from tests.pipelines.training.trainings import Training, train_in_this_process


@pytest.fixture
def training(tmp_path: Path, tiny_model_dir: Path) -> Training:
    return Training(tmp_path, tiny_model_dir)


@pytest.mark.usefixtures("shared_ray")
@pytest.mark.parametrize(
    ("layout", "keys", "epochs"),
    [
        pytest.param("tree", "full", 8, marks=pytest.mark.full),
        pytest.param("tree", "short", 20, marks=pytest.mark.soak),
        pytest.param("stacked", "full", 20, marks=pytest.mark.full),
        pytest.param("ar", "short", 8, marks=pytest.mark.full),
    ],
)
def test_what_was_learned_is_what_is_answered(training: Training, layout: str, keys: str, epochs: int) -> None:
    check_learning(training, layout, keys, epochs)


def test_it_learns_in_one_process(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    train_in_this_process(monkeypatch)
    check_learning(training, "tree", "full", 8)


def check_learning(training: Training, layout: str, keys: str, epochs: int) -> None:
    training.document["engine"]["prompt"] = {"keys": keys}
    # With two documents in a prompt a model this small does not learn which is which.
    training.document["engine"]["stack_size"] = 1
    training.document["optimizer"]["epochs"] = epochs
    text = training.run(layout=layout)
    result = training.result()
    assert result["best_f1"] > 0.9, text
    assert "80 products; taught: 54 values, 26 labelled absent" in text
    assert "tokens right" in text
    log = training.log()
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert losses[-1] < losses[0] / 2
    assert any("validation" in entry for entry in log)
    assert b"<svg" in (training.folder / "out/curve.svg").read_bytes()
    for path in (training.folder / "out/model").glob("*.json"):
        assert str(Path(training.document["model"]).parent) not in path.read_text(), "a path of this machine"
    # The adapter, loaded as an extraction job loads it, on products that it has never seen.
    records = [Record(str(n), "Shoes", self_text) for n in range(200, 212) for self_text in [training.line(n)["input"]]]
    config = EngineConfig(**training.document["engine"], layout="stacked" if layout == "stacked" else "tree")
    kind: Any = AutoregressiveBaseline if layout == "ar" else Engine
    with kind.from_pretrained(training.document["model"], config, adapter=str(training.folder / "out/model")) as engine:
        results = engine.extract(records, load_schemas(str(training.folder / "schemas.yaml")))
        assert engine.notes == [], "it was trained for this"
    expected = [training.line(n)["values"]["Colour"] for n in range(200, 212)]
    right = sum(list(r.values["Colour"].items) == (e or []) for r, e in zip(results, expected, strict=True))
    assert right >= 10, [r.values["Colour"] for r in results]
    assert "finished already" in training.run(layout=layout)
    with (training.folder / "gold.jsonl").open("a") as file:
        file.write(json.dumps(training.line(99)) + "\n")
    with pytest.raises(UsageError, match="the data, or how this version reads them, have changed"):
        training.run(layout=layout)


@pytest.mark.full
@pytest.mark.usefixtures("shared_ray")
def test_full_fine_tuning_writes_a_model(training: Training) -> None:
    text = training.run(method="full", optimizer=training.document["optimizer"] | {"learning_rate": 0.003})
    assert training.result()["best_f1"] > 0.9, text
    with Engine.from_pretrained(str(training.folder / "out/model"), EngineConfig(dtype="float32")) as engine:
        schemas = load_schemas(str(training.folder / "schemas.yaml"))
        (result,) = engine.extract([Record("1", "Shoes", {"title": "blue item 31"})], schemas)
    assert result.values["Colour"].items == ("blue",)


@pytest.mark.full
@pytest.mark.usefixtures("shared_ray")
def test_two_workers_learn_what_one_learns(training: Training) -> None:
    """The same steps, dealt to two: gradients are averaged over workers, losses over the targets of all.

    The clipping norm is far below the gradients', so that the update depends on their sum and on nothing else; three
    packs a step leave one worker with a pack less, which must weigh nothing.
    """
    optimizer = training.document["optimizer"] | {"epochs": 1, "documents_per_step": 12, "max_tokens_per_pack": 300}
    optimizer |= {"max_gradient_norm": 0.001}
    validation = {"share": 0.2, "max_products": 4}
    options: dict[str, Any] = {"optimizer": optimizer, "validation": validation, "log_seconds": 1e-6}
    training.run(**options)
    scaling = {"num_workers": 2, "num_cpus": 0.5, "num_threads": 1}
    training.run(**options, scaling=scaling, output=str(training.folder / "two"))
    one, two = training.result(), training.result("two")
    assert one["num_steps"] == two["num_steps"]
    norms = [[entry["gradient_norm"] for entry in training.log(name) if "loss" in entry] for name in ("out", "two")]
    assert norms[1] == pytest.approx(norms[0], rel=0.02), "every step's gradient"
    assert norms[1][0] == pytest.approx(norms[0][0], rel=1e-4)
    assert min(norms[0]) > 0.01, "the gradients are clipped"
    weights = [load_file(training.folder / name / "model/adapter_model.safetensors") for name in ("out", "two")]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=2e-3, rtol=1e-2)


@pytest.mark.usefixtures("shared_ray")
@pytest.mark.soak
def test_an_adapter_can_be_continued(training: Training) -> None:
    training.run()
    first = str(training.folder / "out/model")
    del training.document["lora"]
    optimizer = training.document["optimizer"] | {"epochs": 0.2, "learning_rate": 1e-5}
    text = training.run(adapter=first, optimizer=optimizer, output=str(training.folder / "more"))
    assert "was validated on other products" not in text
    more = training.run(adapter=first, optimizer=optimizer, output=str(training.folder / "more"))
    assert "finished already" in more
    other = training.document["validation"] | {"share": 0.3}
    text = training.run(
        adapter=first, optimizer=optimizer, validation=other, output=str(training.folder / "other products")
    )
    assert f"Note: {first} was validated on other products" in text
    second = str(training.folder / "other products/model")
    text = training.run(
        adapter=second, optimizer=optimizer, validation=other, output=str(training.folder / "other products, again")
    )
    assert f"Note: {second} was validated on other products" in text, "what the first one learned is still in it"
    assert training.result("more")["best_f1"] == pytest.approx(training.result()["best_f1"], abs=0.1)
    old, new = (
        load_file(Path(folder) / "adapter_model.safetensors") for folder in (first, training.folder / "more/model")
    )
    moved = max((old[name] - new[name]).abs().max().item() for name in old)
    assert 0 < moved < 1e-3


@pytest.mark.soak
@pytest.mark.usefixtures("shared_ray")
def test_validation_products_that_the_engine_refuses(training: Training) -> None:
    """One that is too long is counted as wrong and told; where all are, nothing could be chosen by their score."""
    gold = training.folder / "gold.jsonl"
    lines = [json.loads(line) for line in gold.read_text().splitlines()]
    training.document["optimizer"]["epochs"] = 0.1

    def lengthen(count: int) -> None:
        held_out = 0
        for number, line in enumerate(lines):
            long = {"title": f"{line['input']['title']} {'long ' * 3000}{number}"}
            if is_held_out(Record("", "Shoes", line["input"]), 0.2) and held_out < count:
                held_out += is_held_out(Record("", "Shoes", long), 0.2)
                line["input"] = long
        gold.write_text("".join(json.dumps(line) + "\n" for line in lines))

    lengthen(1)
    assert "; 1 of the products refused (" in training.run(output=str(training.folder / "one"))
    lengthen(len(lines))
    with pytest.raises(UsageError, match="no validation product can be decoded, the last one: "):
        training.run(output=str(training.folder / "all"))


@pytest.mark.full
@pytest.mark.usefixtures("shared_ray")
def test_a_driver_that_lost_its_lease_stops_training(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver takes the folder, as it may where this one slept for a minute: that one continues the run."""
    monkeypatch.setattr(finetune_run, "_LEASE_SECONDS", 0.6)
    monkeypatch.setattr(ray_training, "_SECONDS_BETWEEN_LOOKS", 0.5)
    folder = Folder(str(training.folder / "out"))

    def take_over() -> None:
        wait_until(lambda: (training.folder / "out/_checkpoints").exists())
        entry = {"owner": "other", "host": "elsewhere", "pid": 7, "seconds": 60, "state": "held"}
        folder.write("_lease/99999990.json", json.dumps(entry).encode())

    other = threading.Thread(target=take_over)
    other.start()
    handler = signal.getsignal(signal.SIGINT)
    optimizer = training.document["optimizer"] | {"epochs": 10_000}
    with pytest.raises(RunError, match=r"another driver \(process 7 on elsewhere\) has taken over"):
        training.run(optimizer=optimizer)
    other.join()
    assert signal.getsignal(signal.SIGINT) is handler
    assert not folder.exists("result.json")


@pytest.mark.soak
@pytest.mark.usefixtures("shared_ray")
def test_changed_labels_that_are_scored_alone_are_noticed(training: Training) -> None:
    """Values longer than K_max are not taught, but count in validation."""
    training.document["optimizer"]["epochs"] = 0.1
    gold = training.folder / "gold.jsonl"
    lines = [json.loads(line) for line in gold.read_text().splitlines()]
    held_out = next(line for line in lines if is_held_out(Record("", "Shoes", line["input"]), 0.2))

    def label_it(colour: str) -> None:
        held_out["values"]["Colour"] = [colour]
        gold.write_text("".join(json.dumps(line) + "\n" for line in lines))

    label_it("reddish " * 20 + "blue")
    assert "left out, longer than K_max: 1" in training.run()
    label_it("reddish " * 20 + "green")
    with pytest.raises(UsageError, match="the data, or how this version reads them, have changed"):
        training.run()
    place = training.folder / "out/config.json"
    record = json.loads(place.read_text())
    del record["scored_hash"]
    place.write_text(json.dumps(record))
    assert "finished already" in training.run(), "a run that was begun without this hash"


def test_wrong_use(training: Training) -> None:
    gold = training.folder / "gold.jsonl"
    with pytest.raises(UsageError, match="takes them all"):
        training.run(validation={"share": 0.999999})
    with pytest.raises(UsageError, match="cannot load the model"):
        training.run(model="/no/such/folder")
    with pytest.raises(UsageError, match=r"engine.layout is decided by 'layout'"):
        training.config(engine={"layout": "tree"})
    with pytest.raises(UsageError, match=r"engine.tensor_parallel is the extraction's alone"):
        training.config(engine={"tensor_parallel": 2})
    with pytest.raises(UsageError, match=r"decides its shape; remove lora's rank, alpha and modules"):
        training.config(adapter="somewhere")
    written_out = training.config(adapter="somewhere", lora={"dropout": 0.1}).model_dump(mode="json")["lora"]
    assert training.config(adapter="somewhere", lora=written_out).lora.dropout == 0.1, "as a resume reads it"
    with pytest.raises(UsageError, match=r"unknown key 'optimizer.epoch'; did you mean 'optimizer.epochs'"):
        training.config(optimizer={"epoch": 1})
    gold.write_text(json.dumps(training.line(0) | {"values": {"Weight": ["1"]}}) + "\n")
    with pytest.raises(UsageError, match="no attribute 'Weight'"):
        training.run()
    assert not (training.folder / "out").exists(), "nothing was started"


def command(training: Training, **changes: Any) -> list[str]:
    path = training.folder / "finetune.yaml"
    path.write_text(yaml.safe_dump(training.document | changes))
    return [sys.executable, "-m", "pipelines.cli", "finetune", "--config", str(path)]


def has_checkpoint(output: Path) -> bool:
    """Whether a run that is killed now continues: Ray Train notes a reported checkpoint up to seconds later."""
    try:
        snapshot = json.loads((output / "_checkpoints/checkpoint_manager_snapshot.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return bool(snapshot["checkpoint_results"])


def rewrite_dtype(output: Path, dtype: str | None) -> None:
    """Makes the run's checkpoints those of a machine where `engine.dtype: auto` is another one, or of a version (None)
    that did not note it.
    """
    for path in output.glob("_checkpoints/*/training_state.pt"):
        state = torch.load(path, weights_only=True)
        state["progress"].pop("dtype")
        state["progress"] |= {} if dtype is None else {"dtype": dtype}
        torch.save(state, path)


@pytest.mark.full
@pytest.mark.parametrize(
    ("workers", "method", "dtype"),
    [(1, "lora", "float32"), pytest.param(2, "full", "bfloat16", marks=pytest.mark.soak)],
)
@pytest.mark.ray
def test_a_killed_run_continues_and_ends_with_the_same_weights(
    training: Training, workers: int, method: str, dtype: str
) -> None:
    optimizer = training.document["optimizer"] | {"epochs": 10}
    training.document |= {"method": method, "scaling": {"num_workers": workers, "num_cpus": 0.5, "num_threads": 1}}
    training.document["engine"]["dtype"] = dtype
    options = {"optimizer": optimizer, "checkpoint_minutes": 0.01, "log_seconds": 0.1}
    undisturbed = command(training, **options, output=str(training.folder / "undisturbed"))
    done = subprocess.run(undisturbed, cwd=ROOT, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr

    # The worker freezes where it would note its result: however late the kill comes, the run is not finished.
    output = training.folder / "out"
    with KilledRun(training.folder / "finetune.yaml", output, [Kill("result", 1, "before", "stop")]) as killed:
        (killed.folder / "driver").write_text("0")  # nobody here is asked who the driver is
        with (killed.folder / "log").open("wb") as log:
            driver = subprocess.Popen(
                command(training, **options), cwd=ROOT, env=killed.environment, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            wait_until(lambda: has_checkpoint(output) or driver.poll() is not None)
            assert driver.poll() is None, killed.explain("the driver has ended")
        finally:
            driver.kill()
            driver.wait()
    assert not (output / "result.json").exists()

    other = command(training, **options | {"optimizer": optimizer | {"learning_rate": 0.5}})
    refused = subprocess.run(other, cwd=ROOT, capture_output=True, text=True, timeout=3000)
    assert refused.returncode == 2
    assert "another configuration: optimizer.learning_rate: 0.01 -> 0.5. Continue" in refused.stderr

    rewrite_dtype(output, "float64")
    refused = subprocess.run(command(training, **options), cwd=ROOT, capture_output=True, text=True, timeout=3000)
    assert refused.returncode == 2, refused.stderr
    assert f"this run began in float64, here the model is {dtype}" in refused.stderr
    rewrite_dtype(output, None)

    again = subprocess.run(command(training, **options), cwd=ROOT, capture_output=True, text=True, timeout=3000)
    assert again.returncode == 0, again.stderr
    assert "continues at step" in again.stdout
    name = "adapter_model.safetensors" if method == "lora" else "model.safetensors"
    expected = load_file(training.folder / "undisturbed/model" / name)
    found = load_file(training.folder / "out/model" / name)
    assert training.result()["dtype"] == dtype
    assert training.result()["best_step"] == training.result("undisturbed")["best_step"]
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=1e-5)
