"""Runs beside each other and before a judge: comparison of two runs, and a model as judge of a run's answers."""
