"""Gold files, scores, and the evaluation of a run against them."""
