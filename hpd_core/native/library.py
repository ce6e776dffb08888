"""Compiles the C++ of this folder and loads it.

No wheel could carry it: the same image runs on processors of several kinds, and each is to have its own instructions.
The compiler takes some seconds, once for a kind of processor; the library is then found in the cache.

It uses the OpenMP that torch has loaded (the loader knows it by its name, libgomp.so.1): both have one team of threads.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import torch  # noqa: F401  its OpenMP must be loaded before ours is asked for

from hpd_core.embedded import cache_folder

logger = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("attention.cpp")
_FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fopenmp",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-Wall",
)
_SECONDS = 120


class NativeError(Exception):
    """The library cannot be had on this machine; the message says why."""


def library() -> ctypes.CDLL:
    """The library; compiled, where nobody has done so on this machine.

    Raises:
        NativeError: there is no compiler, or what it makes does not work here.
    """
    found = _built(os.environ.get("CXX") or "g++", cache_folder() / "native")
    if isinstance(found, NativeError):
        raise found
    return found


@functools.cache
def _built(compiler: str, folder: Path) -> ctypes.CDLL | NativeError:
    """An error is kept, too: nobody installs a compiler while a job runs."""
    command = shlex.split(compiler)
    try:
        # What the compiler knows of this machine and of itself.
        macros = _run([*command, "-march=native", "-dM", "-E", "-x", "c++", os.devnull])
        key = hashlib.sha256("\0".join([_SOURCE.read_text(), *command, *_FLAGS, macros]).encode()).hexdigest()[:16]
        path = folder / f"attention-{key}.so"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _compile(command, path)
        loaded = ctypes.CDLL(str(path))
        for function in (loaded.hpd_attend_float32, loaded.hpd_attend_bfloat16):
            function.argtypes, function.restype = [ctypes.c_void_p], None
        return loaded
    except (OSError, AttributeError, subprocess.SubprocessError, NativeError) as error:
        return NativeError(f"{compiler}: {error}")


def _compile(command: list[str], path: Path) -> None:
    """Under its name only when it is whole: other processes may do the same at the same time."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / path.name
        _run([*command, *_FLAGS, str(_SOURCE), "-o", str(made)])
        made.replace(path)
    logger.info("compiled %s", path)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        first = done.stderr.strip().partition("\n")[0]
        raise NativeError(f"exit code {done.returncode}: {first}" if first else f"exit code {done.returncode}")
    return done.stdout
