"""Category schemas: which attributes are asked for."""
