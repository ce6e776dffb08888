"""Answers of a run as a table of one row a product, and as the files that shops take."""
