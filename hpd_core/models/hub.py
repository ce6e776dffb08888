"""Check that the model hub can be reached: once and briefly, before transformers tries each file for half a minute."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus

from huggingface_hub import constants, try_to_load_from_cache

from hpd_core.errors import ModelError
from hpd_core.models.embedded import EMBEDDED_MODELS
from hpd_core.models.local_folders import local_place

_SECONDS = 5.0


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
