"""Errors that carry a message for the user. A stack trace is for our own bugs only."""

from __future__ import annotations

import errno


class HPDError(Exception):
    """Root of all errors this project raises on purpose; the message says what is wrong and how to fix it."""


class ModelError(HPDError):
    """Failure to find, load or use the model; the message says why."""


class PromptError(HPDError):
    """Malformed prompt template, or a text that cannot be put into a prompt."""


class SchemaError(HPDError):
    """JSON Schema that cannot be decoded.

    Attributes:
        path: JSON pointer of the field's value; "*" stands for every item of a list.
        message: description of the problem and of its fix.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path, self.message = path, message

    def __str__(self) -> str:
        return f"{self.path or 'the schema'}: {self.message}"


class EngineError(HPDError):
    """Failure of the engine while decoding; all submissions in flight carry this error."""


class EngineMemoryError(EngineError, MemoryError):
    """Lack of memory in a process of a multi-process engine, which has ended because of it."""


class StorageError(HPDError, OSError):
    """File or folder that cannot be reached: no access, no network, no such protocol; the message says which and why.

    Its `errno` is set, as for every error of a file system; errors of damaged content have none.
    """

    def __init__(self, message: str) -> None:
        super().__init__(errno.EIO, message)

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[type[StorageError], tuple[str]]:
        return type(self), (str(self),)


def first_line(error: Exception) -> str:
    """Return an error's first line. Append the next line if the first ends with a colon; prepend the error's name if
    the message alone says little.
    """
    name = type(error).__name__
    first, *others = (str(error).strip() or name).splitlines()
    text = f"{first} {others[0].strip()}" if others and first.endswith(":") else first
    return f"{name}: {text}" if isinstance(error, LookupError | TypeError | AttributeError) else text
