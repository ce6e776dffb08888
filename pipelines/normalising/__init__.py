"""From a value as the model wrote it to the attribute's own unit, vocabulary and form."""
