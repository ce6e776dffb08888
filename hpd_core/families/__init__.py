"""Model families that need code of ours: the table of them (table.py), and attention that we replace."""
