"""Import of schemas from taxonomies, exports of shops and product databases, JSON Schema, pydantic."""
