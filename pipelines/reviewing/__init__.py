"""What people said of a run's answers: the log of their verdicts, and the corrections that it comes to."""
