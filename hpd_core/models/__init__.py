"""Models: found, loaded, adapted, described, and made to call our attention."""
