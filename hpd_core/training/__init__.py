"""Training examples from the prompts of inference, and their loss."""
