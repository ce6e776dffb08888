"""Every decoder-only model of transformers, as a tiny random one, against the oracle: `python -m tests.core.sweep`."""
