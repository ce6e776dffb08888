"""Two models in one run: the answers of the first that the larger one is asked again, and how both are merged."""
