"""Extraction by any schema from any document: JSON Schema to branches (hpd_core/requests/trunk.py), and values back to
JSON.
"""
