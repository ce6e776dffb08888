"""What changed between two runs: their settings, rows, answers, quality, cost and speed."""
