"""Configuration and schema files, checked before anything starts, and imports of other systems' schemas."""
