"""Attention over packed rows, one file per backend; and the KV cache that it reads."""
