"""Texts: prompt templates, token ids, ends of values, constraints on values, parsing of answers, and their evidence."""
