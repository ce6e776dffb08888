"""What the engine is held against: exact decoding, transformers' generate, and no model at all."""
