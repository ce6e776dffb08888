"""Comparison of two runs: their settings, rows, answers, quality, cost and speed."""
