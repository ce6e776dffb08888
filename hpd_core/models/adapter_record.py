"""What an adapter was trained for, as our fine-tuning notes it beside the adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from hpd_core.config import DocumentAttention, EngineConfig
from hpd_core.errors import ModelError

RECORD_NAME = "hpd.json"


class AdapterRecord(BaseModel):
    """What an adapter was trained for; our fine-tuning leaves it in the adapter's folder as `hpd.json`.

    `prompt_hash` is of the prompt's texts, `rendered_prompt_hash` of all that stood around the documents: these texts,
    and what the tokenizer made of them. Older records have the first alone. `keys` are those of the answers,
    `document_attention` is what documents' tokens see of each other.
    `held_out` is a hash of the validation products, from which neither it nor what it was continued from has learned,
    as far as the records of those say; None where they say nothing, or otherwise. What a later version notes beside is
    left unread.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal[1] = 1
    base_model: str
    base_revision: str | None
    layout: Literal["tree", "stacked", "ar"]
    prompt_hash: str
    rendered_prompt_hash: str | None = None
    keys: Literal["full", "short"] = "full"
    document_attention: DocumentAttention = "causal"
    max_value_tokens: int
    stack_size: int
    held_out: str | None = None

    def write(self, folder: Path) -> None:
        """Writes `hpd.json` into the folder."""
        (folder / RECORD_NAME).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> AdapterRecord | None:
        """The record in the folder, or None if it holds none.

        Raises:
            ModelError: the file is not what `write` writes.
        """
        path = folder / RECORD_NAME
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(map(str, problem["loc"]))
            reason = f"{place}: {problem['msg']}" if place else problem["msg"]
            raise ModelError(
                f"{path} is no record of a fine-tuning: {reason}; put the file that came with the adapter back"
            ) from error


def as_trained(config: EngineConfig, record: AdapterRecord | None, layout: str | None = None) -> EngineConfig:
    """The settings with what is 'auto' as the model has learned it: keys, and how it reads documents.

    Full keys and causal documents where nobody says so; documents are causal in any other layout than 'tree'.

    Args:
        layout: of what is done, where it is not the settings': of a training.
    """
    update: dict[str, Any] = {}
    if config.prompt.keys == "auto":
        keys = record.keys if record is not None else "full"
        update["prompt"] = config.prompt.model_copy(update={"keys": keys})
    if config.document_attention == "auto":
        recorded = record if (layout or config.layout) == "tree" else None
        update["document_attention"] = "causal" if recorded is None else recorded.document_attention
    return config.model_copy(update=update)
