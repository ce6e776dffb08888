"""Baselines to compare the engine with: exact decoding, transformers' generate, and no model at all."""
