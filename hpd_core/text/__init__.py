"""Texts: the prompt's words, ids, how a value ends, which values are allowed, what was written, and where it stands."""
