"""Right and wrong: gold files, scores, and a run measured by them."""
