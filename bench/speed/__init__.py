"""Parts of `bench/benchmark.py`: who runs, what is measured, and the tables it prints."""
