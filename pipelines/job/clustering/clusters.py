"""Result of clustering a run: stored once, like the plan, and binding from then on."""

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
    """Clustered catalog.

    Attributes:
        files: names of the clustered files in the run's folder; the shards' pieces point to them.
        shards: shards of the run, which replace the plan's.
        num_categories: number of categories with a schema.
        num_partitions: number of partitions of the rows.
        seconds: duration of the clustering.
    """

    files: Sequence[str]
    shards: Sequence[Shard]
    num_categories: int
    num_partitions: int
    seconds: float

    def describe(self) -> dict[str, Any]:
        """Return the clustering's entry in the run's manifest."""
        return {
            "files": len(self.files),
            "categories": self.num_categories,
            "partitions": self.num_partitions,
            "seconds": self.seconds,
        }

    @classmethod
    def read(cls, output: Folder) -> Clusters | None:
        """Return the clusters of the run in the folder; None if it is not clustered yet."""
        with named_damage(output, CLUSTERS_NAME):
            data: Mapping[str, Any] | None = output.read_json(CLUSTERS_NAME)
            if data is None:
                return None
            return cls(**{**data, "shards": [shard_from_dict(shard) for shard in data["shards"]]})

    def store(self, output: Folder) -> Clusters:
        """Store the clusters, unless another driver was faster; return the stored ones."""
        output.create(CLUSTERS_NAME, json.dumps(asdict(self), ensure_ascii=False).encode())
        return Clusters.read(output) or self


def run_shards(output: Folder, plan: Plan) -> Sequence[Shard] | None:
    """Return the shards that the run decodes and commits; None until its catalog is clustered."""
    if not plan.is_clustered:
        return plan.shards
    clusters = Clusters.read(output)
    return clusters.shards if clusters is not None else None
