"""The files of cluster/, checked offline: what Ray, EC2 and KubeRay would refuse is refused here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tables import table

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "cluster"
NODE_TYPES = ("l40s-8-spot", "l40s-8-on-demand", "l40s-4-spot", "l40s-4-on-demand")
SEEING = ("ec2:DescribeInstances", "ec2:DescribeInstanceTypes", "ec2:DescribeImages")
GPUS = {"g6e.48xlarge": 8, "g6e.12xlarge": 4}


def load(name: str) -> Any:
    return yaml.safe_load((CLUSTER / name).read_text())


@pytest.fixture(scope="module")
def launcher() -> dict[str, Any]:
    """The launcher's file as Ray completes it."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config: dict[str, Any] = prepare_config(load("aws/cluster.yaml"))
    validate_config(config)
    return config


def test_ray_takes_the_launchers_file(launcher: dict[str, Any]) -> None:
    types = launcher["available_node_types"]
    assert set(types) == {"head", *NODE_TYPES}
    assert types["head"]["resources"] == {"CPU": 0}
    assert "InstanceMarketOptions" not in types["head"]["node_config"], "the driver's node must not be taken away"
    for name in NODE_TYPES:
        node = types[name]["node_config"]
        assert types[name]["min_workers"] == 0, "a cluster without work costs its head alone"
        assert types[name]["resources"]["GPU"] == GPUS[node["InstanceType"]]
        assert (node.get("InstanceMarketOptions") == {"MarketType": "spot"}) == name.endswith("spot")


def chosen(launcher: dict[str, Any], num_actors: int) -> dict[str, int]:
    """Which nodes Ray's autoscaler (v2) would start for so many engines."""
    from ray.autoscaler.v2.instance_manager.config import NodeTypeConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil
    from ray.core.generated.autoscaler_pb2 import ResourceRequestByCount

    job = load("job.yaml")["actors"]
    request = ResourceRequestUtil.make({"GPU": job["num_gpus"], "CPU": job["num_cpus"]})
    types = {
        name: NodeTypeConfig(
            name=name,
            min_worker_nodes=0,
            max_worker_nodes=node_type.get("max_workers", 0),
            priority=node_type.get("priority", 0),
            resources=node_type["resources"],
        )
        for name, node_type in launcher["available_node_types"].items()
    }
    reply = ResourceDemandScheduler(None).schedule(
        SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=types,
            max_num_nodes=launcher["max_workers"] + 1,
            resource_requests=[ResourceRequestByCount(request=request, count=num_actors)],
        )
    )
    assert not reply.infeasible_resource_requests
    return {launch.instance_type: launch.count for launch in reply.to_launch}


def test_work_brings_nodes_and_spot_comes_first(launcher: dict[str, Any]) -> None:
    assert chosen(launcher, 0) == {}
    assert chosen(launcher, 64) == {"l40s-8-spot": 8}
    assert chosen(launcher, 12) == {"l40s-8-spot": 1, "l40s-4-spot": 1}
    assert chosen(launcher, 1) == {"l40s-4-spot": 1}
    # More than all spot nodes hold: the rest is bought on demand.
    assert chosen(launcher, 32 * 8 + 8) == {"l40s-8-spot": 32, "l40s-8-on-demand": 1}


@table("name", ["policy-data.json", "policy-head.json"])
def test_a_policy_allows_what_it_names_and_no_more(name: str) -> None:
    policy = json.loads((CLUSTER / "aws" / name).read_text())
    assert policy["Version"] == "2012-10-17"
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert all(re.fullmatch(r"[a-z0-9]+:[A-Z]\w+", action) for action in actions), "no wildcard in an action"
        if statement["Resource"] == "*":
            assert set(actions) <= {*SEEING, "ecr:GetAuthorizationToken"}
        if "ec2:RunInstances" in actions and "instance/*" in str(statement["Resource"]):
            condition = statement["Condition"]["StringEquals"]
            assert set(condition["ec2:InstanceType"]) == set(GPUS)
            assert condition["aws:RequestTag/ray-cluster-name"] == load("aws/cluster.yaml")["cluster_name"]


@table("name", ["kubernetes/rayjob.yaml", "kubernetes/nightly.yaml"])
def test_a_manifest_starts_this_version_of_ray_and_no_gpu_while_there_is_no_work(name: str) -> None:
    import ray

    manifest = load(name)
    spec = manifest["spec"]["jobTemplate"] if manifest["kind"] == "RayCronJob" else manifest["spec"]
    cluster = spec["rayClusterSpec"]
    assert cluster["rayVersion"] == ray.__version__
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    assert spec["shutdownAfterJobFinishes"] is True
    for group in cluster["workerGroupSpecs"]:
        assert group["replicas"] == group["minReplicas"] == 0
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert limits["nvidia.com/gpu"] == "8"


CRDS = os.environ.get("HPD_KUBERAY_CRDS")


@pytest.mark.skipif(CRDS is None, reason="HPD_KUBERAY_CRDS does not name a folder with KubeRay's CRDs")
@table("name", ["kubernetes/rayjob.yaml", "kubernetes/nightly.yaml"])
def test_kuberay_takes_the_manifest(name: str) -> None:
    import jsonschema

    manifest = load(name)
    assert CRDS is not None
    definition = yaml.safe_load((Path(CRDS) / f"ray.io_{manifest['kind'].lower()}s.yaml").read_text())
    (schema,) = (
        version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"] if version["name"] == "v1"
    )
    _close(schema)
    validator: Any = jsonschema.Draft7Validator(schema)
    manifest["metadata"] = {}
    assert [error.message for error in validator.iter_errors(manifest)] == []
    manifest["spec"]["nonsense"] = 1
    assert list(validator.iter_errors(manifest))


def _close(schema: Any) -> None:
    """Kubernetes drops what a schema does not name; a typing error would never be seen."""
    if isinstance(schema, dict):
        if schema.get("x-kubernetes-int-or-string"):
            schema.pop("anyOf", None)
            schema["type"] = ["integer", "string"]
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            _close(value)
    elif isinstance(schema, list):
        for value in schema:
            _close(value)


def test_the_job_of_the_cluster_is_a_job() -> None:
    from pipelines.config.extraction import JobConfig

    config = JobConfig.model_validate(load("job.yaml"))
    assert config.actors.num_gpus == 1, "on a cluster at rest there is no GPU to be found"


def test_the_nightly_script_names_the_folder_of_the_day(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["bash", str(CLUSTER / "nightly.sh"), "s3://bucket/", "--limit", "5"]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert output[:4] == ["pipelines/extract.py", "--config", "s3://bucket/config/job.yaml", "--set"]
    assert re.fullmatch(r"output=s3://bucket/enriched/\d{4}-\d\d-\d\d", output[4])
    assert output[5:] == ["--base", "s3://bucket/enriched/*", "--limit", "5"]


def test_the_nightly_script_ends_a_run_that_takes_too_long(tmp_path: Path) -> None:
    """Also where SIGINT is ignored, as by what a shell has put into the background."""
    fake = tmp_path / "python"
    fake.write_text("#!/bin/bash\ntrap 'trap : TERM; echo ended in peace; exit 130' TERM\nsleep 30 &\nwait\n")
    fake.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HPD_MAX_HOURS": "0.002"}
    ended = subprocess.run(
        ["bash", str(CLUSTER / "nightly.sh"), "s3://bucket"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert (ended.stdout, ended.returncode) == ("ended in peace\n", 124)
