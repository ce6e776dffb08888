"""What the terminal shows: exit codes, progress, safe text, log lines."""
