"""A price before paying: what decoding a catalog will cost, from a pilot or an earlier run.

scan ─▶ strata ─▶ draw ─▶ pilot run (the real engine) ─▶ observations ─▶ estimate ─▶ forecast
"""
