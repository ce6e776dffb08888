"""Other ways to decode the same answers: generate, continuous batching, guesses, vLLM, and HPD written naively."""
