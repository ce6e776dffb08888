"""Other ways to decode the same answers: generate, continuous batching, vLLM, and HPD written naively."""
