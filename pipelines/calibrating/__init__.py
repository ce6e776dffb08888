"""hpd calibrate: a calibration from finished runs and labels, written beside an adapter, and used on a finished run."""
