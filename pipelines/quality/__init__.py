"""What answers are worth: gold and scores, the probability that an answer is right, and a cascade's two answers."""
