"""Errors that carry a message for the user. A stack trace is for our own bugs only."""


class HPDError(Exception):
    """Root of everything this project raises on purpose; the message says what is wrong and the way out."""


class ModelError(HPDError):
    """The model cannot be found, loaded or used; the message says why."""


class PromptError(HPDError):
    """A prompt template is malformed."""


class EngineError(HPDError):
    """The engine failed while decoding; all submissions in flight carry this error."""
