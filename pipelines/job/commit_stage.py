"""Stage 4: a shard's tables become part of the run, unless another attempt was first."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from pipelines.console.json_logs import about
from pipelines.job.context import JobContext
from pipelines.store.tables import EncodedTable

logger = logging.getLogger(__name__)


class Finished(NamedTuple):
    """A shard's tables as stored, by name, and its facts for the manifest."""

    attempt_id: str
    tables: Mapping[str, EncodedTable]
    facts: Mapping[str, Any]


def commit_shard(shard: int, finished: Finished | None, job: JobContext) -> tuple[dict[str, Any], bool]:
    """Return the manifest of the committed shard, and whether this attempt has written it. `finished`: None if another
    one was committed before."""
    if finished is None or job.ledger.is_committed(shard):
        return job.ledger.manifest(shard), False
    manifest, is_ours = job.ledger.commit(shard, *finished)
    extra = about(shard, attempt=finished.attempt_id, products=finished.facts["counts"]["products"])
    logger.info("committed" if is_ours else "another attempt was committed first", extra=extra)
    return manifest, is_ours
