"""Extraction by any schema from any document: JSON Schema to branches (hpd_core/requests/calls.py), and values back to
JSON.
"""
