"""Hyper-Parallel Decoding (arXiv 2604.26209): many values of many records, one token each per step.

from hpd_core import Attribute, CategorySchema, Engine, Record

engine = Engine.from_pretrained("smollm2")
schema = CategorySchema(category="Shoes", attributes=[Attribute(name="Brand"), Attribute(name="Colour")])
record = Record("1", "Shoes", {"title": "Velor men's running shoe, red"})
print(engine.extract([record], {"Shoes": schema})[0].values["Brand"].text)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpd_core.baselines.autoregressive import AutoregressiveBaseline
    from hpd_core.baselines.null_engine import NullEngine
    from hpd_core.config import EngineConfig
    from hpd_core.engine import Engine
    from hpd_core.errors import EngineError, HPDError, ModelError, PromptError, SchemaError
    from hpd_core.json_schema.answers import FieldAnswer, JsonFuture, JsonResult, Problem
    from hpd_core.json_schema.schema_reader import SchemaLimits, check_schema
    from hpd_core.plain_data import Member
    from hpd_core.requests.calls import Completion, ExtractionFuture, ExtractionMetrics, OpenBranch, Trunk
    from hpd_core.requests.prompt_builder import DocumentTokenizer
    from hpd_core.text.grammars import PatternError
    from hpd_core.text.grounding import ground
    from hpd_core.text.template import PromptTemplate
    from hpd_core.types import Attribute, CategorySchema, ErrorCode, Evidence, Record, RecordResult, Unit, Value

# By module. torch and transformers take seconds to import, and many a process wants plain data only: each name is
# imported when it is first asked for.
_NAMES = {
    "baselines.autoregressive": ("AutoregressiveBaseline",),
    "config": ("EngineConfig",),
    "engine": ("Engine",),
    "errors": ("EngineError", "HPDError", "ModelError", "PromptError", "SchemaError"),
    "requests.calls": ("Completion", "ExtractionFuture", "ExtractionMetrics", "OpenBranch", "Trunk"),
    "json_schema.answers": ("FieldAnswer", "JsonFuture", "JsonResult", "Problem"),
    "json_schema.schema_reader": ("SchemaLimits", "check_schema"),
    "text.grounding": ("ground",),
    "text.grammars": ("PatternError",),
    "baselines.null_engine": ("NullEngine",),
    "requests.prompt_builder": ("DocumentTokenizer",),
    "text.template": ("PromptTemplate",),
    "types": ("Attribute", "CategorySchema", "ErrorCode", "Evidence", "Record", "RecordResult", "Unit", "Value"),
    "plain_data": ("Member",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found
