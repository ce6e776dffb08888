"""User's cache: embedded models, compiled kernels and copies of files at a URI.

Triton's compiled kernels are kept there, too, and a message tells when it has to compile.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """Return the folder of converted models: `$HPD_CACHE`, else `~/.cache/hpd`."""
    return Path(os.environ.get("HPD_CACHE") or Path.home() / ".cache" / "hpd")


logger = logging.getLogger(__name__)

_FOLDER = "TRITON_CACHE_DIR"


def prepare_compile_cache() -> None:
    """Make Triton keep kernels in the user's cache, and log once from now on that it compiles some.

    Call it when a model is loaded, before its first launch. A folder that the user has named is kept.

    Raises:
        ImportError: Triton is not here.
    """
    if _FOLDER not in os.environ:
        os.environ[_FOLDER] = _kept_in(cache_folder() / "triton")
    from triton import knobs

    knobs.compilation.listener = _Listener()


def _kept_in(folder: Path) -> str:
    """Return the folder, or, if it cannot be written, one of this process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        logger.warning("kernels for the GPU cannot be kept (%s): every process compiles them; set HPD_CACHE", error)
        return tempfile.mkdtemp(prefix="hpd-triton-")
    return str(folder)


class _Listener:
    """Listener that Triton calls for every kernel that is found in its cache or was compiled."""

    def __init__(self) -> None:
        self._has_told = False

    def __call__(self, *, cache_hit: bool, **_: Any) -> None:
        if cache_hit or self._has_told:
            return
        self._has_told = True
        logger.info("compiling kernels for this GPU: some seconds, once; they are kept in %s", os.environ[_FOLDER])
