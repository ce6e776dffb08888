"""Storage of a run: its folder, tables, ledger of committed shards, lease, totals, and reviews of its answers."""
