"""Profiling of a user's file for `hpd init`: guesses from its names and content."""
