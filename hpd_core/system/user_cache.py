"""User's cache: embedded models, compiled kernels and copies of files at a URI."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of converted models: `$HPD_CACHE`, else `~/.cache/hpd`."""
    return Path(os.environ.get("HPD_CACHE") or Path.home() / ".cache" / "hpd")
