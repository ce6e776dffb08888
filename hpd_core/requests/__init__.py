"""Requests of callers on their way through the engine: records to prompts, prompts to results."""
