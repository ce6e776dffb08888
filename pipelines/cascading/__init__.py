"""Two models in one run: which answers of the first one the larger one is asked for again, and what becomes of both."""
