"""Library of this folder's C++: compiled and loaded on demand.

It cannot be part of a wheel: the same image runs on processors of several kinds, and each is to have its own
instructions. Compiling takes some seconds, once for a kind of processor; the library is then found in the cache.

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # its OpenMP must be loaded before ours is asked for
from filelock import FileLock

from hpd_core.system.storage import cache_folder

logger = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent
_SOURCES, _HEADERS = sorted(_FOLDER.glob("*.cpp")), sorted(_FOLDER.glob("*.h"))
_FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fopenmp",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-Wno-psabi",
)
_SECONDS = 120

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
"""Dtypes that it computes with, and the suffixes of its functions' names."""

POINTER, INT, NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
"""Types of its functions' arguments and of its structures' fields."""

_ARGUMENTS = {
    "attend": [POINTER],
    "columns_of_block": [INT, INT],
    "add_norm": [*5 * [POINTER], INT, INT, NUMBER, NUMBER, INT],
    "rotate": [*4 * [POINTER], *5 * [INT]],
    "gated": [*3 * [POINTER], INT, INT, INT],
    "choose": [POINTER, INT, INT, POINTER, POINTER, POINTER, INT],
    "norm_backward": [*6 * [POINTER], INT, INT, NUMBER, INT],
    "swiglu_backward": [*5 * [POINTER], INT, INT],
    "cross_entropy_backward": [*4 * [POINTER], INT, INT, NUMBER, NUMBER, INT],
}
"""Argument types of functions that exist for each of `DTYPES`."""

_ARGUMENTS_OF_OTHERS = {
    "has_tiles": [],
    "layers": [POINTER],
    "choose_by_tiles": [POINTER, INT, INT, POINTER, INT, POINTER, INT, POINTER, POINTER, POINTER, INT],
    "linear": [POINTER, INT, INT, POINTER, INT, POINTER, POINTER, INT, INT],
    "gated_mlp": [POINTER, INT, INT, POINTER, INT, INT, POINTER, INT, POINTER, INT, INT],
    "weight_gradient": [*4 * [POINTER], *4 * [INT]],
    "trained_attention": [POINTER],
    "trained_attention_backward": [POINTER],
}


class NativeError(Exception):
    """Error if the library is not available on this machine; the message says why."""


def load() -> ctypes.CDLL:
    """Return the library; compile it first if it is not in the cache.

    Raises:
        NativeError: there is no compiler, or its output does not work here.
    """
    found = _load()
    if isinstance(found, NativeError):
        raise found
    return found


def is_here() -> bool:
    """Return whether the library is available on this machine."""
    return not isinstance(_load(), NativeError)


@functools.cache
def _load() -> ctypes.CDLL | NativeError:
    """Load once per process: every layer asks, and a compiler is not installed while a job runs."""
    compiler = os.environ.get("CXX") or "g++"
    try:
        return _loaded(compiler_command())
    except (OSError, ValueError, RuntimeError, AttributeError, subprocess.SubprocessError, NativeError) as error:
        return NativeError(f"{compiler}: {error}")


def compiler_command() -> list[str]:
    """Return the compiler's command. Raise `ValueError` if `$CXX` cannot be parsed."""
    return shlex.split(os.environ.get("CXX") or "g++")


def macros_of(command: list[str]) -> str:
    """Return the compiler's predefined macros, for this machine and itself. Raise `OSError` or `NativeError`."""
    return _run([*command, "-march=native", "-dM", "-E", "-x", "c++", os.devnull])


def _loaded(command: list[str]) -> ctypes.CDLL:
    macros = macros_of(command)
    texts = [path.read_text() for path in (*_SOURCES, *_HEADERS)]
    key = hashlib.sha256("\0".join([*texts, *command, *_FLAGS, macros]).encode()).hexdigest()[:16]
    path = cache_folder() / "native" / f"kernels-{key}.so"
    if path.exists():
        return _open(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                _compile(command, path)
        return _open(path)
    except OSError as error:
        logger.info("%s cannot be written (%s): compiled for this process alone", path, error)
    with tempfile.TemporaryDirectory(prefix="hpd-") as scratch:  # what is loaded need not stay
        alone = Path(scratch) / path.name
        _compile(command, alone)
        return _open(alone)


def _open(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for dtype in DTYPES.values():
        for name, arguments in _ARGUMENTS.items():
            getattr(library, f"hpd_{name}_{dtype}").argtypes = arguments
    for name, arguments in _ARGUMENTS_OF_OTHERS.items():
        getattr(library, f"hpd_{name}").argtypes = arguments
    return library


def function(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    """Return the library's function for this dtype; what those that return nothing give has no meaning."""
    found: Callable[..., Any] = getattr(load(), f"hpd_{name}_{DTYPES[dtype]}")
    return found


def columns_of_block(dtype: torch.dtype, key_size: int, value_size: int) -> int:
    """Return the columns per value block read by `attend`, for these head sizes."""
    return int(function("columns_of_block", dtype)(key_size, value_size))


def _compile(command: list[str], path: Path) -> None:
    """Compile, and give the library its name only when all of it is on the disk: half a library would crash its
    process.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / path.name
        _run([*command, *_FLAGS, *map(str, _SOURCES), "-o", str(made)])
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(path)
    logger.info("compiled %s", path)


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        told = next((line for line in said if "error" in line), said[-1])
        raise NativeError(f"exit code {done.returncode}: {told.strip()}")
    return done.stdout
