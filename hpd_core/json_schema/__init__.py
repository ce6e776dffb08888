"""Extraction by any schema from any document: JSON Schema to branches (hpd_core/completion.py), and values back to
JSON.
"""
