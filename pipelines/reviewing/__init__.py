"""People's part: the review page and its server, and what rewrites a finished run (corrections, decisions, units)."""
