"""Plain data, which knows nothing of the rest: configuration sections, enum members, places in nested objects."""
