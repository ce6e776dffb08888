"""Storage of a run: its folder, tables, ledger of committed shards, lease and totals."""
