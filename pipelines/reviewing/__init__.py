"""People's verdicts on a run's answers: their log, and the resulting corrections."""
