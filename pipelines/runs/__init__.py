"""A run that is read: its plan, status and tables, with what people said of its answers."""
