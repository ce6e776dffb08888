"""Configuration of a judge: the keys of `teacher` in the configuration of `hpd label`, from a file or from options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.config.loading import apply_override, parse_config
from pipelines.config.yaml_files import load_yaml
from pipelines.errors import UsageError

# It explains every attribute before it judges it.
_MAX_OUTPUT_TOKENS = 4096
_FIXED = {
    "kind": "a judge is always behind an OpenAI-compatible endpoint",
    "instruction": "a judge is asked in the paper's words",
    "json_mode": "a judge answers in words",
}
_TEACHER = re.compile(r"\bteacher\.")


def judge_config(place: str, changes: Sequence[str], option: str) -> OpenAITeacherConfig:
    """Return the judge at `place`: an endpoint's address, or a YAML file with the keys.

    Args:
        changes: `key=value`, instead of the file's.
        option: the option that named the place, for messages.

    Raises `UsageError`.
    """
    if place.startswith(("http://", "https://")):
        document: Any = {"base_url": place}
    else:
        document = load_yaml(place)
        if not isinstance(document, dict):
            raise UsageError(f"{place}: a mapping of keys is needed (base_url, model, ...)")
    for change in changes:
        apply_override(document, change, f"{option}-set")
    if fixed := [key for key in _FIXED if key in document]:
        raise UsageError(f"{option}: {fixed[0]!r} is no key of a judge: {_FIXED[fixed[0]]}")
    keys = {"kind": "openai", "json_mode": "off", "max_output_tokens": _MAX_OUTPUT_TOKENS, **document}
    return parse_config(OpenAITeacherConfig, keys, f"{option} {place}")


def about_judge(error: Exception) -> str:
    """Rewrite a message of the client, which calls the judge a teacher."""
    return _TEACHER.sub("judge.", str(error))
