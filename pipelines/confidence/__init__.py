"""Probability that an answer is right, learned from labelled products, and the decision which answers to accept."""
