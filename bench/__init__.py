"""Measurements: speed beside rivals, what the job carries, models of any shape. Not shipped with the job."""
