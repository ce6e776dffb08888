"""Trained weights, an adapter or the whole model: the optimizer on their float32 copies, and its learning rate.

Half-precision weights cannot take small updates (bfloat16 has 8 bits of mantissa). So the optimizer adds to a float32
copy, and the model's own weights are its rounded values.
"""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from hpd_core import ModelError
from hpd_core.mixers.running import running_anew
from hpd_core.models import description, loading, quantized_checkpoints
from hpd_core.models.adapter_folder import Adapter, AdapterRecord, as_trained, open_adapter
from hpd_core.models.adapters import check_base, load_weights, lora_settings
from hpd_core.training.mixing import bypassed_linears
from pipelines.config.finetuning import FinetuneConfig, OptimizerConfig

_STATE = "training_state.pt"


class TrainedModel:
    """Loaded model and its trained parameters."""

    def __init__(self, config: FinetuneConfig) -> None:
        """Load the model. Raises `HPDError` with a message for the user."""
        self.config = config
        self.tokenizer = loading.load_tokenizer(config.model, config.engine)
        quantized_checkpoints.refuse_training(loading.load_config(config.model, config.engine))
        self.model: Any = loading.load_model(config.model, config.engine)
        source = loading.resolve_source(config.model)
        self.revision = description.model_revision(self.model, source)
        if self.model.dtype == torch.float16:
            raise ModelError("float16 gradients underflow; set engine.dtype: bfloat16 or float32")
        self._peft: Any = None
        # Records of earlier fine-tunings. A model without a record was not fine-tuned by us, which is the usual case;
        # an adapter without one (None) was fine-tuned on unknown data.
        self._earlier: list[AdapterRecord | None] = []
        if (record := AdapterRecord.read(Path(source))) is not None:
            self._earlier.append(record)
        torch.manual_seed(config.seed)
        if config.adapter:
            with open_adapter(config.adapter) as adapter:
                check_base(adapter, self.revision)
                self._earlier.append(adapter.record)
                record = adapter.record
                self._add_lora(lora_settings(adapter) | {"lora_dropout": config.lora.dropout}, adapter)
        elif config.method == "lora":
            lora = config.lora
            modules = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
            shape: dict[str, Any] = {"r": lora.rank, "lora_alpha": lora.alpha, "target_modules": modules}
            if modules == "all-linear":
                shape["exclude_modules"] = bypassed_linears(self.model) or None
            self._add_lora(shape | {"lora_dropout": lora.dropout}, None)
        # A continued adapter keeps the prompt and layout that it was trained with.
        self.config = config.model_copy(update={"engine": as_trained(config.engine, record, config.layout)})
        _keep_differentiable(self.model)
        if config.optimizer.gradient_checkpointing:
            settings = {"use_reentrant": False, "context_fn": running_anew}
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
            self.model.enable_input_require_grads()
        self.model.train()

    def _add_lora(self, settings: dict[str, Any], adapter: Adapter | None) -> None:
        try:
            shape = LoraConfig(**settings, task_type="CAUSAL_LM")
            self._peft = get_peft_model(self.model, shape, autocast_adapter_dtype=False)
        except re.error as error:
            raise ModelError(
                f"lora.target_modules: {settings['target_modules']!r} is no regular expression: {error}. A text "
                f"is one, for layers' whole names, such as '.*_proj'; a list has the ends of their names"
            ) from error
        except (ValueError, RuntimeError, TypeError) as error:
            raise ModelError(f"the adapter does not fit the model: {error}") from error
        if experts := self._peft.peft_config["default"].target_parameters:
            raise ModelError(
                f"peft takes some of lora.target_modules for what the experts hold in one tensor "
                f"({', '.join(sorted(experts))}), and the engine loads no such adapter: name layers other than "
                f"gate_proj, up_proj and down_proj, such as those of attention"
            )
        if adapter is not None:
            load_weights(self._peft, adapter)
        self._peft.peft_config["default"].base_model_name_or_path = self._base_name

    @property
    def _base_name(self) -> str:
        """Name of the base model without its local folder, because the path means nothing on another machine."""
        path = Path(self.config.model)
        return path.name if path.is_dir() else self.config.model

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Trainable parameters."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def has_never_seen(self, held_out: str | None) -> bool:
        """Return whether all earlier fine-tunings of it held out these products, too. `held_out`: their hash."""
        return all(record is not None and record.held_out == held_out for record in self._earlier)

    def save(self, folder: Path, held_out: str | None) -> None:
        """Write the files for inference: an adapter in peft's format, or the whole model.

        `held_out`: hash of the products that this training holds out, None if it holds out none.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self._peft is not None:
            # The base's embeddings are not the adapter's (and asking for them would ask the hub).
            self._peft.save_pretrained(folder, save_embedding_layers=False)
            (folder / "README.md").unlink(missing_ok=True)  # peft's empty form; the card is written by a person
        else:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        engine = self.config.engine
        prompt = engine.autoregressive().prompt if self.config.layout == "ar" else engine.prompt
        AdapterRecord(
            base_model=self._base_name,
            base_revision=self.revision,
            layout=self.config.layout,
            prompt_hash=prompt.hash,
            keys="short" if prompt.keys == "short" else "full",
            rendered_prompt_hash=prompt.rendered_hash(self.tokenizer),
            document_attention="bidirectional" if engine.reads_both_ways else "causal",
            max_value_tokens=engine.max_value_tokens,
            stack_size=engine.stack_size,
            held_out=held_out if self.has_never_seen(held_out) else None,
        ).write(folder)


def _keep_differentiable(model: torch.nn.Module) -> None:
    """Keep bitsandbytes from packing 4-bit weights for CPUs with AVX-512 bf16.

    It packs at the first forward in eval mode, here at the first validation. A product with packed weights has no
    gradient for its input, so the layers below would not learn.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]


class MasterWeights:
    """AdamW over float32 copies of half-precision parameters, with warm-up and cosine decay."""

    def __init__(self, parameters: list[torch.nn.Parameter], config: OptimizerConfig, num_steps: int) -> None:
        self._parameters = parameters
        self._config = config
        self._num_steps = num_steps
        self._masters = [parameter.detach().clone().float().requires_grad_() for parameter in parameters]
        # Fused: one pass over the weights. With `method: full` the update is a good part of a step on a CPU.
        self._optimizer = torch.optim.AdamW(
            self._masters, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of step `step` (from 0)."""
        warmup = max(1, round(self._config.warmup_share * self._num_steps))
        if step < warmup:
            return self._config.learning_rate * (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, self._num_steps - warmup))
        floor = self._config.final_learning_rate_share
        return self._config.learning_rate * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)

    @torch.no_grad()
    def step(self, number: int) -> float:
        """Apply the parameters' gradients, clear them and return their norm before clipping."""
        for master, parameter in zip(self._masters, self._parameters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        norm = torch.nn.utils.clip_grad_norm_(self._masters, self._config.max_gradient_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = self.learning_rate(number)
        self._optimizer.step()
        self._round()
        return float(norm)

    def state(self) -> dict[str, Any]:
        """Return the state for `load`."""
        return {"masters": [master.detach() for master in self._masters], "optimizer": self._optimizer.state_dict()}

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Restore `state`, and set the model's weights accordingly."""
        for master, saved in zip(self._masters, state["masters"], strict=True):
            master.copy_(saved)
        self._optimizer.load_state_dict(state["optimizer"])
        self._round()

    def _round(self) -> None:
        for master, parameter in zip(self._masters, self._parameters, strict=True):
            parameter.copy_(master)


def save_state(folder: Path, weights: MasterWeights, progress: dict[str, Any], best: Path) -> None:
    """Write a checkpoint: the optimizer's state, the progress, and the best weights so far."""
    torch.save({"weights": weights.state(), "progress": progress}, folder / _STATE)
    if best.exists():
        shutil.copytree(best, folder / "best")


def load_state(folder: Path, weights: MasterWeights, best: Path) -> dict[str, Any]:
    """Restore the weights and the best weights saved by `save_state`, and return the saved progress."""
    state: dict[str, Any] = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
    weights.load(state["weights"])
    if (folder / "best").exists():
        shutil.copytree(folder / "best", best, dirs_exist_ok=True)
    progress: dict[str, Any] = state["progress"]
    return progress
