"""What is refused before any work: an endpoint that is not there, a wrong key, configuration or file."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.pipelines.conftest import products
from tests.pipelines.labelling.labellings import Labelling
from tests.pipelines.labelling.served_teacher import INSTRUCTION, Reply, TroubleMaker, right_answer
from tests.pipelines.ports import free_ports


def test_nobody_there(labelling: Labelling) -> None:
    url = f"http://localhost:{free_ports(1)[0]}/v1"
    result = labelling.ask(url)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: cannot reach {url}: ")
    assert not labelling.output.exists()
    assert not labelling.manifest_path.exists()


@pytest.mark.parametrize("models_status", [200, 401])
def test_a_wrong_key_stops_at_once(labelling: Labelling, monkeypatch: pytest.MonkeyPatch, models_status: int) -> None:
    def behave(*_: Any) -> Reply:
        return Reply({"error": {"message": "Incorrect API key provided: sk-secret-1"}}, 401)

    monkeypatch.setenv("TEACHER_KEY", "sk-secret-1")
    with TroubleMaker(behave, models_status=models_status) as server:
        result = labelling.ask(server.url, teacher={"api_key_env": "TEACHER_KEY", "max_concurrency": 1})
    assert result.exit_code == 2
    assert "answers HTTP 401: " in result.stderr
    assert "check the key in TEACHER_KEY" in result.stderr
    assert "sk-secret" not in result.output
    assert len(server.requests) == (models_status == 200)
    assert not labelling.labelled()


def test_the_key_is_sent_and_written_nowhere(labelling: Labelling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER_KEY", "sk-secret-1")
    with TroubleMaker(right_answer, models_status=404) as server:
        assert labelling.ask(server.url, teacher={"api_key_env": "TEACHER_KEY"}).exit_code == 0
    assert set(server.authorizations) == {"Bearer sk-secret-1"}
    for path in (labelling.output, labelling.manifest_path):
        assert "sk-secret" not in path.read_text()


@pytest.mark.parametrize(
    ("teacher", "changes", "message"),
    [
        ({"api_key_env": "sk-abc"}, {}, "'teacher': api_key_env is the name of an environment variable"),
        ({"api_key_env": "NOT_SET_ANYWHERE"}, {}, "the environment variable NOT_SET_ANYWHERE is not set"),
        ({"base_url": "localhost:8000"}, {}, "base_url must start with http:// or https://"),
        ({"base_url": "http://a:sk-abc@b/v1"}, {}, "base_url must not hold a password"),
        ({"engine": {}}, {}, "unknown key 'teacher.engine'; it belongs to another 'teacher.kind'"),
        ({"kind": "oracle"}, {}, "'teacher': Input tag 'oracle' found using 'kind' does not match"),
        ({"instruction": "no places"}, {}, "instruction must contain {attributes} exactly once"),
        ({}, {"output": "s3://bucket/labels.jsonl"}, "output must be a local file"),
        ({}, {"output": "labels.parquet"}, "output must end with .jsonl"),
    ],
)
def test_wrong_configuration(
    labelling: Labelling, teacher: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    result = labelling.ask("http://localhost:1/v1", teacher=teacher, **changes)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "sk-abc" not in result.output


def test_a_changed_configuration_is_refused_and_a_harmless_change_is_not(labelling: Labelling) -> None:
    with TroubleMaker(right_answer) as server:
        assert labelling.ask(server.url, "--limit", "2").exit_code == 0
        for teacher, changes, message in [
            ({"model": "other"}, {}, "teacher.model was 'm', is now 'other'"),
            ({"instruction": INSTRUCTION}, {}, "teacher.instruction was"),
            ({}, {"require_evidence": True}, "require_evidence was False, is now True"),
            ({}, {"sample": 3}, "sample seed was None, is now 0"),
        ]:
            result = labelling.ask(server.url, teacher=teacher, **changes)
            assert result.exit_code == 2
            assert message in result.stderr
            assert "name another output" in result.stderr
        schemas = yaml.safe_load((labelling.workplace.folder / "schemas.yaml").read_text())
        schemas["categories"]["Shoes"].append({"name": "Sole"})
        other = labelling.workplace.folder / "other.yaml"
        other.write_text(yaml.safe_dump(schemas))
        assert "schemas was" in labelling.ask(server.url, schemas=str(other)).stderr
        assert labelling.ask(server.url, teacher={"max_concurrency": 2, "max_retries": 1}).exit_code == 0
        labelling.workplace.write_jsonl("a.jsonl", products(7))
        assert "a.jsonl was" in labelling.ask(server.url).stderr
    assert len(labelling.labelled()) == 6


def test_files_of_somebody_else_are_left_alone(labelling: Labelling) -> None:
    labelling.output.write_text('{"product_id": "p1", "category": "Shoes", "values": {}}\n')
    result = labelling.ask("http://localhost:1/v1")
    assert result.exit_code == 2
    assert f"{labelling.output}, line 1: not written by this command" in result.stderr
    assert len(labelling.labelled()) == 1
