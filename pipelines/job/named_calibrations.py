"""Check of named calibrations against the job's models, before anything is stored or an engine is loaded.

Only the contents of the model's files are compared here. The rest is compared once the engine is loaded.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

from hpd_core import EngineConfig, HPDError
from hpd_core.models.adapter_folder import AdapterRecord, as_trained, open_adapter
from hpd_core.models.description import model_revision
from hpd_core.models.loading import load_config, load_tokenizer, resolve_source
from pipelines.cascading.larger_model import larger_model
from pipelines.confidence.calibration_file import NOT_SAID, CalibratedModel
from pipelines.confidence.run_confidence import RunConfidence
from pipelines.config.extraction import JobConfig
from pipelines.errors import UsageError


def check_named(config: JobConfig, confidence: RunConfidence) -> None:
    """Raise `UsageError` if a named calibration was made for another model than the one that it is named for."""
    if config.decoding == "made-up":
        return  # it has no model
    for of_larger in (False, True):
        if any(each.is_named and each.of_larger == of_larger for each in confidence.calibrations):
            try:
                model = _known(larger_model(config) if of_larger else config)
            except HPDError as error:
                raise UsageError(str(error)) from error
            confidence.check(model, of_larger=of_larger)


def _known(config: JobConfig) -> CalibratedModel:
    """Return the known identity of the model that `config` names; unknown parts are `NOT_SAID`."""
    settings, revision = config.engine, _revision(config)
    source = resolve_source(config.model, weights=False)
    with nullcontext() if config.adapter is None else open_adapter(config.adapter) as adapter:
        record = AdapterRecord.read(Path(source)) if adapter is None else adapter.record
        asked = as_trained(settings, record)
    is_hpd = config.decoding == "hpd"
    return CalibratedModel(
        model_id=NOT_SAID,
        model_revision=revision,
        adapter_revision=None if adapter is None else adapter.revision,
        prompt_hash=asked.prompt.rendered_hash(load_tokenizer(config.model, settings)) if is_hpd else NOT_SAID,
        decoding=config.decoding,
        layout=settings.layout if is_hpd else NOT_SAID,
        # Weights may be stored in FP8: nobody has to ask for it.
        quantization=settings.quantization or NOT_SAID,
        max_scored_tokens=_scored_tokens(settings) if is_hpd else NOT_SAID,
        document_attention=asked.document_attention if is_hpd else NOT_SAID,
        strings=settings.strings if is_hpd else NOT_SAID,
        answer_threshold=settings.answer_threshold if is_hpd else NOT_SAID,
    )


def _scored_tokens(settings: EngineConfig) -> int:
    """Return `max_scored_tokens` as the engine describes itself; 0 if it does not score."""
    return settings.max_scored_tokens if settings.layout == "tree" and settings.constrain_values else 0


def _revision(config: JobConfig) -> str | None:
    if "://" in config.model:
        return NOT_SAID  # its weights are not fetched for this
    loaded = SimpleNamespace(config=load_config(config.model, config.engine))
    return model_revision(loaded, resolve_source(config.model, weights=False))
