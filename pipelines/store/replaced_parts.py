"""Replacement of a part that a finished run has published.

    1  the shard's manifest announces the new part:  {..., "sha256": old, "coming": {"sha256": new, ...}}
    2  the published file is replaced atomically
    3  the manifest describes the new part:          {..., "sha256": new}

A kill in between leaves a manifest that names both: the file is one of the two. The next pass tells which.
"""

from __future__ import annotations

import hashlib

from pipelines.store.ledger import Ledger
from pipelines.store.tables import EncodedTable


def replace_part(ledger: Ledger, shard: int, table: str, part: EncodedTable) -> None:
    """Replace the shard's published part of a table."""
    manifest = ledger.manifest(shard)
    entry = manifest["tables"][table]
    coming = {
        "num_rows": part.num_rows,
        "num_bytes": len(part.data),
        "sha256": hashlib.sha256(part.data).hexdigest(),
    }
    entry["coming"] = coming
    ledger.rewrite(shard, manifest)
    ledger.folder.write(entry["public"], part.data)
    del entry["coming"]
    entry.update(coming)
    ledger.rewrite(shard, manifest)


def settle_replacement(ledger: Ledger, shard: int, table: str) -> None:
    """Make the manifest say which of two parts is there, if a pass was killed while it replaced one."""
    manifest = ledger.manifest(shard)
    entry = manifest["tables"][table]
    coming = entry.pop("coming", None)
    if coming is None:
        return
    data = ledger.folder.read(entry["public"])
    if hashlib.sha256(data).hexdigest() == coming["sha256"]:
        entry.update(coming)
    ledger.rewrite(shard, manifest)
