"""Catalogs, configurations and runs that lie on S3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from hpd_core.system import storage
from pipelines.store.folders import Folder
from tests.pipelines.commands import ROOT, assert_same
from tests.pipelines.conftest import Workplace, product, products, read_table
from tests.pipelines.job.on_s3.s3_server import (
    S3Server,
)


def upload(source: Path, target: str) -> str:
    filesystem, path = storage.open_filesystem(target)
    filesystem.put(str(source), path, recursive=source.is_dir())
    return target


def download(source: str, target: Path) -> Path:
    filesystem, path = storage.open_filesystem(source)
    for name in filesystem.find(path):
        local = target / name.removeprefix(f"{path}/")
        local.parent.mkdir(parents=True, exist_ok=True)
        filesystem.get_file(name, str(local))
    return target


def everything_on_s3(workplace: Workplace, bucket: str) -> str:
    """Uploads catalog, schemas and model, and a configuration that names them there; returns its URI."""
    document = workplace.document()
    document["input"]["path"] = upload(workplace.catalog, f"{bucket}/catalog")
    document["schemas"] = upload(Path(document["schemas"]), f"{bucket}/schemas.yaml")
    document["model"] = upload(workplace.model, f"{bucket}/model")
    document["output"] = f"{bucket}/out"
    Folder(bucket).write("job.yaml", yaml.safe_dump(document, sort_keys=False).encode())
    return f"{bucket}/job.yaml"


def extract(config: str, server: S3Server, *arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    environment: dict[str, str] = {**os.environ, **server.environment, "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in changes.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    command = [sys.executable, "pipelines/extract.py", "--config", config, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000, env=environment)


def mixed_catalog(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(30), row_group_size=7)
    workplace.write_jsonl("b.jsonl", [*products(20, 30), product(50, category=None), '{"id": "p51"'])


def assert_same_run(local: Path, remote: Path) -> None:
    """Equal tables; a row's file is known by its last name, since the two runs read different folders."""
    for table in ("products", "attributes", "dead_letter"):
        rows = [read_table(folder, table) for folder in (local, remote)]
        for row in rows[0] + rows[1]:
            row["source_file"] = row["source_file"].rsplit("/", 1)[-1]
            row.pop("model_id", None)
            row.pop("carried_from", None)
        assert_same(*rows)
