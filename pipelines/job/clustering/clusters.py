"""What the clustering of a run came to: kept once, like the plan, and gone by from then on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.catalog.sharding import Shard, shard_from_dict
from pipelines.job.run_plan import Plan
from pipelines.store.damaged import named_damage
from pipelines.store.folders import Folder
from pipelines.store.ledger import CLUSTERS_NAME


@dataclass(frozen=True, slots=True)
class Clusters:
    """The catalog as it was dealt anew.

    Attributes:
        files: names of the clustered files in the run's folder; the shards' pieces point to them.
        shards: the run's, instead of the plan's.
        num_categories: with a schema.
        num_partitions: among which the rows were dealt.
        seconds: that it took.
    """

    files: Sequence[str]
    shards: Sequence[Shard]
    num_categories: int
    num_partitions: int
    seconds: float

    def describe(self) -> dict[str, Any]:
        """For the run's manifest."""
        return {
            "files": len(self.files),
            "categories": self.num_categories,
            "partitions": self.num_partitions,
            "seconds": self.seconds,
        }

    @classmethod
    def read(cls, output: Folder) -> Clusters | None:
        """Those of the run in the folder; None as long as there are none."""
        with named_damage(output, CLUSTERS_NAME):
            data: Mapping[str, Any] | None = output.read_json(CLUSTERS_NAME)
            if data is None:
                return None
            return cls(**{**data, "shards": [shard_from_dict(shard) for shard in data["shards"]]})

    def store(self, output: Folder) -> Clusters:
        """Keeps them, unless another driver was faster; returns those that count."""
        output.create(CLUSTERS_NAME, json.dumps(asdict(self), ensure_ascii=False).encode())
        return Clusters.read(output) or self


def run_shards(output: Folder, plan: Plan) -> Sequence[Shard] | None:
    """What the run decodes and commits one after the other; None as long as its catalog is not clustered yet."""
    if not plan.is_clustered:
        return plan.shards
    clusters = Clusters.read(output)
    return clusters.shards if clusters is not None else None
