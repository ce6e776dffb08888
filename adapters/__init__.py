"""Adapters that ship, and how they were made."""
