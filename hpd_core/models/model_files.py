"""Names of models and adapters that are local paths, and the files expected there.

It does without torch, so that a plan can check names at once.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable
from http import HTTPStatus
from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache

from hpd_core.errors import ModelError
from hpd_core.models.embedded import EMBEDDED_MODELS

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
NO_FOLDER = "there is no such folder"
NO_ADAPTER_FOLDER = "no such folder; an adapter is a local folder, an fsspec URI, or a hub id"
_MODEL_CONFIG = "config.json"
_SECONDS = 5.0


def local_place(name: str) -> Path | None:
    """Return the path that a name means, whether or not it exists; None for a hub id or a URI.

    For a model, check the embedded ones first.
    """
    if "://" in name:
        return None
    place = os.path.expanduser(name)  # Path's own raises an error for a user that there is not
    # A hub id has one slash at most.
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or os.path.exists(place)
    return Path(place) if is_path else None


def local_folder(name: str) -> Path | None:
    """Return the folder that a name means, if it exists. A name never raises an error, however long it is."""
    place = local_place(name)
    return place if place is not None and os.path.isdir(place) else None


def portable_name(name: str) -> str:
    """Return the name for a process with another working directory: an absolute path for a local folder, else
    unchanged.
    """
    folder = local_folder(name)
    return name if folder is None else str(folder.absolute())


def what_models_are() -> str:
    """Return a description of valid models, for error messages."""
    names = ", ".join(sorted(EMBEDDED_MODELS))
    return f"a model is a folder with safetensors weights, local or at any fsspec URI, a hub id, or one of: {names}"


def files_digest(paths: Iterable[Path]) -> str:
    """Return a short digest of the files' names and contents, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return f"sha256:{digest.hexdigest()[:16]}"


def model_problem(folder: Path) -> str | None:
    """Return why this path is not a model that can be loaded, judged by the names of its files; None if it is."""
    if not os.path.isdir(folder):
        return "it is a file, a folder is needed" if os.path.exists(folder) else NO_FOLDER
    return model_files_problem(os.listdir(folder))


def model_files_problem(names: Collection[str]) -> str | None:
    """Return the same for a folder anywhere, given the names of its files."""
    if _MODEL_CONFIG not in names:
        if ADAPTER_CONFIG in names:
            return f"there is no {_MODEL_CONFIG} in it: it is an adapter, which goes with the model that it is for"
        return f"there is no {_MODEL_CONFIG} in it"
    is_whole = any(name.endswith(".safetensors") for name in names)
    return None if is_whole else "there are no weights (*.safetensors) in it"


def adapter_problem(folder: Path) -> str | None:
    """Return why this path is not an adapter, judged by the names of its files; None if it is."""
    return adapter_files_problem(os.listdir(folder)) if os.path.isdir(folder) else NO_ADAPTER_FOLDER


def adapter_files_problem(names: Collection[str]) -> str | None:
    """Return the same for a folder anywhere, given the names of its files."""
    missing = next((name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS) if name not in names), None)
    if missing is None:
        return None
    return (
        f"there is no {missing} in it; an adapter is a folder as peft's save_pretrained writes it, with "
        f"{ADAPTER_CONFIG} and {ADAPTER_WEIGHTS}"
    )


def require_hub(model: str) -> None:
    """Raise if the model can only come from the hub and the hub cannot be reached.

    Nothing is checked for models in its cache, or with HF_HUB_OFFLINE, which transformers itself obeys at once.

    Args:
        model: as in `Engine.from_pretrained`.

    Raises:
        ModelError: the hub cannot be reached.
    """
    if model in EMBEDDED_MODELS or "://" in model or local_place(model) is not None:
        return
    if constants.HF_HUB_OFFLINE or isinstance(_cached(model), str):
        return
    try:
        # By the standard library: it goes through the proxies that the environment names, and does not ask again.
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        with urllib.request.urlopen(request, timeout=_SECONDS):
            return
    except (OSError, http.client.HTTPException, ValueError) as error:  # the last: HF_ENDPOINT is no address
        if isinstance(error, urllib.error.HTTPError):
            if error.code < 500 and error.code != HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
                return  # it answers; what of the model, it is asked next
            reason: object = error
        else:
            reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLError):
            return  # its client has certificates of its own
        names = ", ".join(sorted(EMBEDDED_MODELS))
        raise ModelError(
            f"cannot load the model {model!r}: it is neither a local folder nor one of {names}, and the model hub "
            f"({constants.ENDPOINT}) cannot be reached: {str(reason).strip() or type(reason).__name__}; set "
            f"HF_ENDPOINT to the hub's address (https://huggingface.co) and HTTPS_PROXY to that of your proxy, or "
            f"name a folder"
        ) from error


def _cached(model: str) -> object:
    try:
        return try_to_load_from_cache(model, "config.json")
    except ValueError:  # no name that the hub can have: transformers says why
        return ""
