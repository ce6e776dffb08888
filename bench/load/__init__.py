"""How much the job can carry: a made-up catalog of any size, and what running it costs. `bench/load_test.py`."""
