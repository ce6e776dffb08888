"""Training writes down how keys were written and documents were read, and goes on as it was begun."""

from __future__ import annotations

from pathlib import Path

from hpd_core.models.adapter_folder import AdapterRecord
from pipelines.training.trained_weights import TrainedModel
from tests.pipelines.training.trainings import Training
from tests.tables import table


@table(("layout", "expected"), [("tree", "short"), ("ar", "full")])
def test_keys_are_written_down_and_kept(layout: str, expected: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    training = Training(tmp_path, tiny_model_dir)
    first, second = tmp_path / "first", tmp_path / "second"
    training.document["engine"]["prompt"] = {"keys": "short"}
    TrainedModel(training.config(layout=layout)).save(first, None)
    del training.document["engine"]["prompt"]
    TrainedModel(training.config(layout=layout, adapter=str(first), lora={})).save(second, None)
    records = [AdapterRecord.read(folder) for folder in (first, second)]
    assert [record and record.keys for record in records] == [expected] * 2
    assert records[0] is not None
    assert records[1] is not None
    assert records[0].prompt_hash == records[1].prompt_hash
    plain = TrainedModel(training.config(layout=layout))
    assert plain.config.engine.prompt.keys == "full", "as a model is that nobody has trained for it"


def test_how_documents_are_read_is_written_down_and_kept(tmp_path: Path, tiny_model_dir: Path) -> None:
    training = Training(tmp_path, tiny_model_dir)
    engine = dict(training.document["engine"])
    first, second, third, fourth = (tmp_path / name for name in ("first", "second", "third", "fourth"))
    TrainedModel(training.config(engine=engine | {"document_attention": "bidirectional"})).save(first, None)
    TrainedModel(training.config(adapter=str(first), lora={})).save(second, None)
    TrainedModel(training.config()).save(third, None)
    TrainedModel(training.config(adapter=str(first), lora={}, layout="stacked")).save(fourth, None)
    records = [AdapterRecord.read(folder) for folder in (first, second, third, fourth)]
    read = [each and each.document_attention for each in records]
    assert read == ["bidirectional", "bidirectional", "causal", "causal"], "in other layouts documents are causal"
