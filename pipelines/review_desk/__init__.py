"""Review of a run's answers by people: candidates and their order, the page, its server, the gold file."""
