"""Shops: what each reads and writes, in one file, which the rest does not import. `known.py` lists them."""
