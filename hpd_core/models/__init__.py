"""Models: finding, loading, adapting and describing them, and making them call our attention."""

import logging

# peft imports bitsandbytes, which warns of a missing kernel that only 4-bit weights on CPUs would use.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
