"""What a run writes: its folder, tables, ledger of done shards, lease and totals."""
