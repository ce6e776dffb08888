"""Attention over packed rows, a file a way to attend; and the KV cache that it reads."""
