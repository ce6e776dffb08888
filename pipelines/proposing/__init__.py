"""Attributes for the categories of a catalog, proposed from a sample of its products."""
