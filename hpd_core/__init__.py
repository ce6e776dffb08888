"""Hyper-Parallel Decoding (arXiv 2604.26209): many values of many records, one token each per step.

from hpd_core import Attribute, CategorySchema, Engine, Record

engine = Engine.from_pretrained("smollm2")
schema = CategorySchema(category="Shoes", attributes=[Attribute(name="Brand"), Attribute(name="Colour")])
record = Record("1", "Shoes", {"title": "Velor men's running shoe, red"})
print(engine.extract([record], {"Shoes": schema})[0].values["Brand"].text)
"""

from hpd_core.baseline import AutoregressiveBaseline
from hpd_core.config import EngineConfig
from hpd_core.engine import Engine
from hpd_core.errors import EngineError, HPDError, ModelError, PromptError
from hpd_core.extractor import ExtractionFuture, ExtractionMetrics
from hpd_core.grounding import ground
from hpd_core.null_engine import NullEngine
from hpd_core.prepare import DocumentTokenizer
from hpd_core.prompt import PromptTemplate
from hpd_core.types import Attribute, CategorySchema, ErrorCode, Evidence, Record, RecordResult, Value

__all__ = [
    "Attribute",
    "AutoregressiveBaseline",
    "CategorySchema",
    "DocumentTokenizer",
    "Engine",
    "EngineConfig",
    "EngineError",
    "ErrorCode",
    "Evidence",
    "ExtractionFuture",
    "ExtractionMetrics",
    "HPDError",
    "ModelError",
    "NullEngine",
    "PromptError",
    "PromptTemplate",
    "Record",
    "RecordResult",
    "Value",
    "ground",
]
