"""Tensor parallelism: one model over several processes of a node."""
