"""Workloads of the benchmarks: records with the token length of every answer."""
