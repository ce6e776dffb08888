"""Terminal output: exit codes, progress, safe text, log lines."""
