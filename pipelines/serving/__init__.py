"""A server that clients of OpenAI's interface already speak to: a schema and a text in, JSON out (serve.py)."""
