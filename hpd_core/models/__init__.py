"""Models: finding, loading, adapting and describing them, and making them call our attention."""
