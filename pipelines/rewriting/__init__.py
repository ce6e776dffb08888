"""Finished runs, rewritten part by part without a model: normalised anew, decided anew, with people's corrections."""
