"""The catalog that goes in: files, rows, records, and how they are cut into shards."""
