"""Calibrations: learned from finished runs and labels, written beside an adapter, applied to a finished run."""
