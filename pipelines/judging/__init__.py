"""A model as judge of a run's answers: the paper's classes, its LLM-F1, and how far a judge can be trusted."""
