"""Extraction job, in one process or on Ray: preflight, stages, rounds and outcome; and a run that is read."""
