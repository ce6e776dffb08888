"""Normalisation of values that the model wrote, to the attribute's own unit, vocabulary and form."""
