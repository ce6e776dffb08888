"""The user's cache: embedded models, compiled kernels and copies of what lies behind a URI."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where converted models are kept: `$HPD_CACHE`, else `~/.cache/hpd`."""
    return Path(os.environ.get("HPD_CACHE") or Path.home() / ".cache" / "hpd")
