"""The configuration of a fine-tuning: one YAML file, checked before anything starts.

`FinetuneConfig` is the reference: every key, its default and what it means. Unknown keys are refused.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hpd_core import EngineConfig
from hpd_core.plain_data import Section
from hpd_core.training.examples import TrainedLayout
from pipelines.config.catalog_input import InputConfig


class DatasetConfig(Section):
    """Products with their right answers."""

    gold: str = Field(description="gold file: ours or ExtractGPT's; what hpd label writes")
    schemas: str = Field(description="YAML file with the attributes of every category")
    input: InputConfig | None = Field(
        None, description="the catalog that the gold file belongs to; null: every line holds its own text in 'input'"
    )


class LabelPolicy(Section):
    """Rules for turning labels into training targets."""

    unlabelled: Literal["absent_unless_known", "absent", "untaught"] = Field(
        "absent_unless_known",
        description="attributes that nobody labelled: taught as absent, unless a value known for the attribute in the "
        "category stands in the product's text ('absent_unless_known'); always; or never taught",
    )
    absent_share: float = Field(
        1.0, gt=0, le=1, description="share of the assumed absents that is taught in an epoch, drawn anew each time"
    )
    swapped: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the examples in whose text some values make room for those of other products of the "
        "category (training/swapped_values.py)",
    )
    unknown_attributes: Literal["refuse", "skip"] = Field(
        "refuse", description="gold attributes that the schema does not have: an error, or left out and counted"
    )
    corrections_weight: int = Field(
        2,
        ge=1,
        le=100,
        description="times that an answer is taught in an epoch where people corrected a model "
        "(`hpd review RUN --gold FILE`); any other answer is taught once",
    )


class LoraSettings(Section):
    """The adapter's shape (peft's LoraConfig)."""

    rank: int = Field(16, ge=1, description="rank of the update")
    alpha: float = Field(32, gt=0, description="the update is scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of the inputs that the adapter does not see")
    target_modules: str | tuple[str, ...] = Field("all-linear", description="names of the layers that get an adapter")


class OptimizerConfig(Section):
    """AdamW with linear warm-up and cosine decay; weights of the update are kept in float32."""

    epochs: float = Field(3, gt=0, description="times that every example is seen; may be a fraction")
    learning_rate: float = Field(1e-3, gt=0, description="at its highest; about 10 times less for method 'full'")
    final_learning_rate_share: float = Field(0.05, ge=0, le=1, description="what is left of it at the end")
    warmup_share: float = Field(0.05, ge=0, lt=1, description="of all steps")
    weight_decay: float = Field(0.0, ge=0, description="of AdamW")
    betas: tuple[float, float] = Field((0.9, 0.99), description="of AdamW")
    max_gradient_norm: float = Field(1.0, gt=0, description="larger gradients are scaled down to it")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target that goes to all tokens alike")
    documents_per_step: int = Field(16, ge=1, description="products in a step, over all workers")
    max_tokens_per_pack: int = Field(2048, ge=64, description="tokens of one forward; bounds the memory")
    gradient_checkpointing: bool = Field(False, description="less memory, a forward more")

    @field_validator("betas")
    @classmethod
    def _check_betas(cls, value: tuple[float, float]) -> tuple[float, float]:
        # Else the optimizer says so, once the workers are up.
        if not all(0 <= beta < 1 for beta in value):
            raise ValueError("both must be at least 0 and less than 1")
        return value


class ValidationConfig(Section):
    """Validation by real decoding of products that are not trained on."""

    share: float = Field(0.1, ge=0, lt=1, description="of the products, chosen by a hash of their text")
    max_products: int = Field(128, ge=1, description="products decoded in one evaluation")
    evaluations_per_epoch: float = Field(1, gt=0, description="how often they are decoded and scored")
    patience: int | None = Field(None, ge=1, description="evaluations without a better F1 after which training stops")


class ScalingSection(Section):
    """Scaling: Ray Train workers, each with a copy of the model (data parallel)."""

    num_workers: int = Field(1, ge=1, description="one a GPU; on CPUs, one with all cores is best")
    use_gpu: bool | None = Field(None, description="by default, if the cluster has a GPU for every worker")
    num_cpus: float = Field(1, gt=0, description="CPUs that Ray reserves for a worker")
    num_threads: int | None = Field(None, ge=1, description="torch threads of a worker without GPU; default: all")
    max_failures: int = Field(3, ge=0, description="times a failed worker group is started again")


class FinetuneConfig(Section):
    """One fine-tuning."""

    datasets: tuple[DatasetConfig, ...] = Field(
        min_length=1, description="products with their answers; a category is trained on the schema of its own data set"
    )
    output: str = Field(min_length=1, description="folder of this run, and of no other; local or s3://...")
    model: str = Field("smollm2", min_length=1, description="hub id, local folder, or an embedded model's name")
    adapter: str | None = Field(None, description="folder of an adapter to continue from; decides the adapter's shape")
    layout: TrainedLayout = Field("tree", description="'tree', 'stacked' or 'ar': what the model is to decode with")
    method: Literal["lora", "full"] = Field("lora", description="an adapter, or all weights")
    seed: int = Field(0, description="of order, variants and new weights")
    engine: EngineConfig = Field(
        default_factory=EngineConfig, description="as in the extraction job; stack_size is the largest J of 'stacked'"
    )
    labels: LabelPolicy = Field(default_factory=LabelPolicy, description="what is made of the labels")
    lora: LoraSettings = Field(default_factory=LoraSettings, description="the adapter's shape")
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig, description="how the weights are moved")
    validation: ValidationConfig = Field(
        default_factory=ValidationConfig, description="products that are decoded, not trained on"
    )
    scaling: ScalingSection = Field(default_factory=ScalingSection, description="processes and devices")
    checkpoint_minutes: float = Field(5, gt=0, description="at most so much work is lost when the process dies")
    log_seconds: float = Field(10, gt=0, description="seconds between progress lines")

    @model_validator(mode="after")
    def _check_layout(self) -> FinetuneConfig:
        if "layout" in self.engine.model_fields_set:
            raise ValueError("engine.layout is decided by 'layout' here; remove it")
        if self.engine.quantization == "fp8":
            raise ValueError(
                "nothing is trained over weights in FP8; train in bfloat16 (or over nf4), and set "
                "engine.quantization: fp8 in the extraction job, which merges the adapter first"
            )
        if self.engine.quantization and self.method == "full":
            raise ValueError("quantized weights cannot be trained in full; use method: lora")
        if self.scaling.num_workers > 1 and self.engine.device not in ("auto", "cpu"):
            raise ValueError("engine.device names one device for several workers; leave it at 'auto'")
        if self.engine.tensor_parallel > 1:
            raise ValueError(
                "engine.tensor_parallel is the extraction's alone: a worker holds the whole model; remove it"
            )
        if self.adapter and self.method == "full":
            raise ValueError("an adapter is continued with method: lora")
        if self.adapter and self.lora.model_copy(update={"dropout": 0.0}) != LoraSettings():
            # Defaults that are written out are no wish: a run's own record has them.
            raise ValueError("the adapter that is continued decides its shape; remove lora's rank, alpha and modules")
        return self

    def deciding(self) -> dict[str, Any]:
        """Return the settings that decide what is trained, as plain data: a run resumes only if they are unchanged."""
        data = self.model_dump(mode="json", exclude={"output", "checkpoint_minutes", "log_seconds", "scaling"})
        for dataset in data["datasets"]:
            # How a catalog is reached does not change what is in it.
            (dataset["input"] or {}).pop("anonymous", None)
        return data | {"scaling": {"num_workers": self.scaling.num_workers}}
