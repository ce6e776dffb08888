"""What is said of a checkpoint that cannot be read: one line, and never the trace of whoever tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError

from hpd_core.errors import ModelError
from hpd_core.models.local_folders import what_models_are
from hpd_core.system.device import is_out_of_memory


@contextmanager
def reading(model: str) -> Iterator[None]:
    """Raises `ModelError` for whatever is raised while it is entered, but for want of memory: of files that it can make
    nothing of, transformers says so by any error."""
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
    """That it cannot be loaded, why, and what a model is."""
    return f"cannot load the model {model!r}: {first_line(error)} ({what_models_are()})"


def first_line(error: Exception) -> str:
    """Of what an error says; with the next one where it announces that, with its name where it says little else."""
    name = type(error).__name__
    first, *others = (str(error).strip() or name).splitlines()
    text = f"{first} {others[0].strip()}" if others and first.endswith(":") else first
    return f"{name}: {text}" if isinstance(error, LookupError | TypeError | AttributeError) else text
