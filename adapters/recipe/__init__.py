"""Training data for the shipped adapter: varied schemas, retold texts and invented statements. Not in the wheel."""
