"""What the benchmark decodes: records with the token length of every answer."""
