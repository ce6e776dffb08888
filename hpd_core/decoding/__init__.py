"""The decoder: prompts and branches in, tokens out. It knows nothing of products."""
