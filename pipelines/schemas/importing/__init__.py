"""Schemas from where they already are: taxonomies, exports of shops and product databases, JSON Schema, pydantic."""
