"""Errors for a checkpoint that cannot be read: one line, and never the library's traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError

from hpd_core.errors import ModelError
from hpd_core.models.local_folders import what_models_are
from hpd_core.system.device import is_out_of_memory


@contextmanager
def reading(model: str) -> Iterator[None]:
    """Raise `ModelError` for any error in the context except out of memory: transformers raises any error for files
    that it cannot parse.
    """
    try:
        yield
    except ModelError:
        raise
    except SafetensorError as error:
        raise ModelError(f"a file of the weights of {model!r} is not whole: copy it again ({error})") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(not_found(model, error)) from error


def not_found(model: str, error: Exception) -> str:
    """Return the message: that the model cannot be loaded, why, and what a model is."""
    return f"cannot load the model {model!r}: {first_line(error)} ({what_models_are()})"


def first_line(error: Exception) -> str:
    """Return an error's first line. Append the next line if the first ends with a colon; prepend the error's name if
    the message alone says little.
    """
    name = type(error).__name__
    first, *others = (str(error).strip() or name).splitlines()
    text = f"{first} {others[0].strip()}" if others and first.endswith(":") else first
    return f"{name}: {text}" if isinstance(error, LookupError | TypeError | AttributeError) else text
