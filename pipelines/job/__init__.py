"""Extraction job, in one process or on Ray: preflight, stages, rounds and outcome."""
