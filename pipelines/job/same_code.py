"""Check of a process's code against the driver's: nodes may have been made from other images."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from pipelines.errors import UsageError

_ROOT = Path(__file__).resolve().parents[2]
_ENDINGS = frozenset({".py", ".cpp", ".h", ".csv", ".yaml"})  # units and native code decide answers, too


@functools.cache
def code_digest() -> str:
    """Return the digest of this process's HPD, as on the disk at the first call; a driver calls it as it starts."""
    digest = hashlib.sha256()
    for path in sorted(path for package in ("hpd_core", "pipelines") for path in (_ROOT / package).rglob("*")):
        name = path.relative_to(_ROOT)
        # Editors and packers leave hidden files, and links that lead nowhere.
        if path.suffix not in _ENDINGS or any(part.startswith(".") for part in name.parts) or not path.is_file():
            continue
        content = path.read_bytes()
        digest.update(f"{name.as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def check_code(wanted: str) -> None:
    """Raise `UsageError` unless this process's digest is `wanted`: results of different code must not be mixed."""
    if code_digest() != wanted:
        raise UsageError(
            f"HPD in {_ROOT} is not what the job was started with: another version, or a file was edited since. All "
            "nodes need the same image, or start the job by `ray job submit --working-dir .`; then it is continued"
        )
