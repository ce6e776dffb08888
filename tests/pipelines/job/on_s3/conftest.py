"""A real S3 server, and this process reaching it as a user would."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from hpd_core.system import storage
from tests.pipelines.job.on_s3.s3_server import BUCKET, S3Server, s3_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes this process reach a server as a user would: through the environment."""

    def reach(server: S3Server, **changes: str | None) -> None:
        usual: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name.startswith("AWS_"))
        usual |= {**server.environment, "AWS_EC2_METADATA_DISABLED": "true"}
        for name, value in {**usual, **changes}.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        # Clients are kept per process; the environment is looked at when one is made.
        storage._s3_class().clear_instance_cache()

    yield reach
    storage._s3_class().clear_instance_cache()


@pytest.fixture
def bucket(server: S3Server, reach: Callable[..., None], request: pytest.FixtureRequest) -> str:
    """A place of the test's own in the bucket, reached with the owner's key."""
    reach(server)
    return f"s3://{BUCKET}/{request.node.name.replace('[', '-').rstrip(']')}"
