"""Fine-tuning: gold files to examples, examples to steps, steps to an adapter."""
