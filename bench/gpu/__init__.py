"""Measures the engine on one GPU: parts, each in a worker process under a time limit (bench/measure_gpu.py)."""
