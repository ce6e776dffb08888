"""Writes a model of a well-known shape with random weights: what speed depends on, without a download.

    python bench/random_model.py qwen3-1.7b --out runs/models/qwen3-1.7b
    python bench/benchmark.py --config configs/demo.yaml --set model=runs/models/qwen3-1.7b --workload listings

Its texts are split by another model's tokenizer, so that prompts are as long as real ones. Its answers mean nothing:
only answers of given lengths (`benchmark.py`) can be measured with it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import transformers
import typer

from hpd_core import EngineConfig, HPDError
from hpd_core.models import loading

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "max_position_embeddings": 40_960,
}

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        **_QWEN3,
        **{"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
        "tie_word_embeddings": True,
    },
    "qwen3-1.7b": {
        **_QWEN3,
        **{"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
        "tie_word_embeddings": True,
    },
    "qwen3-8b": {
        **_QWEN3,
        **{"hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32},
        "tie_word_embeddings": False,
    },
}
"""As in the `config.json` of the models that Qwen has published under these names."""


def random_config(shape: dict[str, Any], tokenizer: Any) -> Any:
    """Return the model's configuration. Raise `ValueError` if the tokenizer's vocabulary is larger than the model's."""
    if len(tokenizer) > shape["vocab_size"]:
        raise ValueError(f"the tokenizer has {len(tokenizer)} tokens, the model {shape['vocab_size']}")
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return transformers.AutoConfig.for_model(**shape, **ends)


def random_model(shape: dict[str, Any], tokenizer: Any, device: str, seed: int = 0) -> Any:
    """Make a model in bfloat16 on the device. Arguments and errors are those of `write_random_model`."""
    config = random_config(shape, tokenizer)
    torch.manual_seed(seed)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def write_random_model(shape: dict[str, Any], tokenizer: Any, folder: Path, seed: int = 0) -> int:
    """Write config, bfloat16 weights and tokenizer in transformers' format. Return the number of weights.

    Args:
        shape: the arguments of the model's configuration, with its `model_type`.
        tokenizer: saved beside it; its vocabulary must not be larger than the model's.

    Raises:
        ValueError: the tokenizer's vocabulary is larger.
    """
    # Where there is a GPU, billions of random numbers are a matter of seconds.
    model = random_model(shape, tokenizer, "cuda" if torch.cuda.is_available() else "cpu", seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


@app.command()
def main(
    name: Annotated[str, typer.Argument(metavar="SHAPE", help=f"One of {', '.join(SHAPES)}.")],
    out: Annotated[Path, typer.Option(help="Folder to write; a finished one is left as it is.")],
    tokenizer: Annotated[str, typer.Option(help="The model whose tokenizer it gets.")] = "smollm2",
) -> None:
    """Write a model of a well-known shape with random weights, for benchmarks."""
    if name not in SHAPES:
        typer.echo(f"Error: no shape {name!r}; there are {', '.join(SHAPES)}", err=True)
        raise typer.Exit(2)
    # The tokenizer is written last.
    if (out / "tokenizer_config.json").exists():
        typer.echo(f"{out} is there already")
        return
    try:
        loaded = loading.load_tokenizer(tokenizer, EngineConfig())
        count = write_random_model(SHAPES[name], loaded, out)
    except (HPDError, OSError, ValueError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{out}: {name}, {count / 1e9:.2f} billion random weights in bfloat16")


if __name__ == "__main__":
    app()
