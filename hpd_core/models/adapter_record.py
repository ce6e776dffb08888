"""Record of an adapter's training, as our fine-tuning writes it beside the adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from hpd_core.config import DocumentAttention, EngineConfig
from hpd_core.errors import ModelError

RECORD_NAME = "hpd.json"


class AdapterRecord(BaseModel):
    """Record of an adapter's training; our fine-tuning writes it to the adapter's folder as `hpd.json`.

    `prompt_hash` is of the prompt's texts. `rendered_prompt_hash` is of everything around the documents: these texts,
    and the tokenizer's rendering of them. Older records have only the first. `keys` are those of the answers.
    `document_attention` is which tokens of a document see each other. `held_out` is a hash of the validation products,
    from which neither it nor the adapter it was continued from has learned, according to their records. It is None if
    the records say nothing, or otherwise. Fields of later versions are ignored.
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
        """Write `hpd.json` into the folder."""
        (folder / RECORD_NAME).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> AdapterRecord | None:
        """Return the record in the folder, or None if it holds none.

        Raises:
            ModelError: the file is not in the format of `write`.
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
    """Return the settings with 'auto' replaced as the model was trained: keys, and how it reads documents.

    The defaults are full keys and causal documents; documents are causal in any other layout than 'tree'.

    Args:
        layout: layout of a training, if it differs from the settings'.
    """
    update: dict[str, Any] = {}
    if config.prompt.keys == "auto":
        keys = record.keys if record is not None else "full"
        update["prompt"] = config.prompt.model_copy(update={"keys": keys})
    if config.document_attention == "auto":
        recorded = record if (layout or config.layout) == "tree" else None
        update["document_attention"] = "causal" if recorded is None else recorded.document_attention
    return config.model_copy(update=update)
