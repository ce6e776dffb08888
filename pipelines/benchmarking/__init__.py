"""Parts of `pipelines/benchmark.py`."""
