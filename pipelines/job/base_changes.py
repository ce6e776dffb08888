"""Changes between a run with a `base` and that earlier run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import pyarrow.compute as pc

from pipelines.job.carryover import EarlierRun
from pipelines.reviewing.layer import Layer
from pipelines.store.folders import Folder, map_requests
from pipelines.store.tables import read_part


@dataclass(frozen=True, slots=True)
class Changes:
    """Counts of products by their change since the earlier run, matched by id.

    Attributes:
        base, base_run_id: the earlier run's folder and name.
        obstacles: reasons why nothing could be carried over: settings or an engine that differ.
        carried: products with all answers carried over.
        completed: products with some answers carried over, because their category's schema has changed.
        decoded_again: other products of the earlier run that were decoded, because their text, category or settings
            have changed or they had failed.
        new: products whose id the earlier run did not have, whether carried over (from another id with the same text)
            or not.
        dropped: ids of the earlier run's products that the catalog no longer has.
        reviewed: people's answers kept from the earlier run.
        reviews_left_out: verdicts there on other texts or answers than that run has, or on rows that it lacks.
    """

    base: str
    base_run_id: str
    obstacles: Sequence[str] = field(default_factory=list)
    carried: int = 0
    completed: int = 0
    decoded_again: int = 0
    new: int = 0
    dropped: int = 0
    reviewed: int = 0
    reviews_left_out: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for the manifest and for JSON output."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the changes that `to_dict` has written."""
        return cls(**data)


def find_changes(earlier: EarlierRun, output: Folder, obstacles: Sequence[str], carried: Mapping[str, int]) -> Changes:
    """Compare the product ids of two runs, by 64-bit hashes (8 bytes a product).

    Args:
        obstacles: from `EarlierRun.obstacles`.
        carried: counts of products, as in a shard's manifest.
    """
    answered_before, _ = _ids(earlier.folder, "products")
    known = np.concatenate([answered_before, _ids(earlier.folder, "dead_letter")[0]])
    answered, is_decoded = _ids(output, "products")
    is_known = np.isin(answered, known)
    # A row that could not be extracted this time is not gone from the catalog.
    there = np.concatenate([answered, _ids(output, "dead_letter")[0]])
    completed = carried.get("products_in_part", 0)
    return Changes(
        base=earlier.folder.uri,
        base_run_id=earlier.plan.run_id,
        obstacles=list(obstacles),
        carried=carried.get("products", 0),
        completed=completed,
        # A product whose text moved to a new id may be completed, too.
        decoded_again=max(0, int((is_decoded & is_known).sum()) - completed),
        new=int((~is_known).sum()),
        dropped=len(np.setdiff1d(answered_before, there)),
        reviewed=carried.get("reviewed", 0),
        reviews_left_out=len(Layer.open(earlier.folder, earlier.normalised).left_out),
    )


def has_any_product(earlier: EarlierRun, ids: Collection[str]) -> bool:
    """Return whether the earlier run had one of these product ids."""
    known = np.concatenate([_ids(earlier.folder, table)[0] for table in ("products", "dead_letter")])
    wanted = pd.util.hash_array(np.array([*ids], dtype=object), categorize=False)
    return bool(np.isin(wanted, known).any())


def _ids(folder: Folder, table: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return hashes of a table's product ids, and whether the run decoded them itself; skip rows without an id."""

    def read(name: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        part = read_part(folder, f"{table}/{name}", ["product_id", *(["carried_from"] if table == "products" else [])])
        part = part.filter(pc.is_valid(part.column("product_id")))
        ids = part.column("product_id").to_numpy().astype(object)
        is_decoded = pc.is_null(part.column(part.num_columns - 1)).to_numpy()
        return np.asarray(pd.util.hash_array(ids, categorize=False), dtype=np.uint64), is_decoded

    parts = map_requests(read, folder.list(table))
    hashes, decoded = zip(*parts, strict=True) if parts else ((), ())
    return np.concatenate([np.zeros(0, np.uint64), *hashes]), np.concatenate([np.zeros(0, bool), *decoded])
