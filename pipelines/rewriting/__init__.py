"""Rewriting of finished runs, part by part, without a model: new normalisation, decisions or people's corrections."""
