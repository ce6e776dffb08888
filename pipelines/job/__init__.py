"""The extraction job on Ray: preflight, stages, rounds, and what came of it."""
