"""Forward of a model over a packed row: its own layers, or ours between its matrix products."""
