"""Where people review a run's answers: what they are asked and in which order, the page, its server, the gold file."""
