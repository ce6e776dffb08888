"""Errors that carry a message for the user. A stack trace is for our own bugs only."""

from __future__ import annotations

import errno


class HPDError(Exception):
    """Root of everything this project raises on purpose; the message says what is wrong and the way out."""


class ModelError(HPDError):
    """The model cannot be found, loaded or used; the message says why."""


class PromptError(HPDError):
    """A prompt template is malformed."""


class SchemaError(HPDError):
    """A JSON Schema that cannot be decoded.

    Attributes:
        path: of the field in question, as the JSON pointer of its value; "*" stands for every item of a list.
        message: what is wrong with it, and the way out.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path, self.message = path, message

    def __str__(self) -> str:
        return f"{self.path or 'the schema'}: {self.message}"


class EngineError(HPDError):
    """The engine failed while decoding; all submissions in flight carry this error."""


class EngineMemoryError(EngineError, MemoryError):
    """A process of an engine that has several ran out of memory, and the engine has ended."""


class StorageError(HPDError, OSError):
    """A file or folder cannot be reached: no access, no network, no such protocol; the message says which and why.

    It has an `errno`, as every trouble of a file system has and damaged content has not.
    """

    def __init__(self, message: str) -> None:
        super().__init__(errno.EIO, message)

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[type[StorageError], tuple[str]]:
        return type(self), (str(self),)
