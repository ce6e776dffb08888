"""Cost forecasts: the price of decoding a catalog, from a pilot or an earlier run.

scan ─▶ strata ─▶ draw ─▶ pilot run (the real engine) ─▶ observations ─▶ estimate ─▶ forecast
"""
