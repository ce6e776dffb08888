"""What users may rely on: the names, what importing does not bring in, and data that travels."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
from pydantic import ValidationError

import hpd_core
from hpd_core import (
    Attribute,
    CategorySchema,
    EngineConfig,
    EngineError,
    ErrorCode,
    Evidence,
    ModelError,
    PromptTemplate,
    Record,
    RecordResult,
    Value,
)
from tests.tables import table

PUBLIC = [
    "Attribute",
    "AutoregressiveBaseline",
    "CategorySchema",
    "Completion",
    "DocumentTokenizer",
    "Engine",
    "EngineConfig",
    "EngineError",
    "ErrorCode",
    "Evidence",
    "ExtractionFuture",
    "ExtractionMetrics",
    "FieldAnswer",
    "HPDError",
    "JsonFuture",
    "JsonResult",
    "Member",
    "ModelError",
    "NullEngine",
    "OpenBranch",
    "PatternError",
    "Problem",
    "PromptError",
    "PromptTemplate",
    "Record",
    "RecordResult",
    "SchemaError",
    "SchemaLimits",
    "Trunk",
    "Unit",
    "Value",
    "check_schema",
    "ground",
    "joined",
]


def test_the_public_names() -> None:
    assert hpd_core.__all__ == PUBLIC
    assert all(hasattr(hpd_core, name) for name in PUBLIC)
    assert all(getattr(hpd_core, name).__doc__ for name in PUBLIC)


def test_hpd_core_never_imports_ray() -> None:
    code = (
        "import importlib, importlib.util, pkgutil, sys, hpd_core\n"
        "names = {m.name for m in pkgutil.walk_packages(hpd_core.__path__, 'hpd_core.')}\n"
        # What PyTorch for CUDA brings along; nothing else may be missing.
        "of_triton = {n for n in names if n.split('.')[-1].startswith('triton') or n.endswith('step_graphs')}\n"
        "if importlib.util.find_spec('triton') is None: names -= of_triton\n"
        "for name in names: importlib.import_module(name)\n"
        "bad = {'ray', 'pyarrow', 'pandas', 'pipelines'} & set(sys.modules)\n"
        "sys.exit(f'imported: {bad}' if bad else 0)"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


SCHEMA = CategorySchema(
    category="Shoes",
    attributes=(
        Attribute(name="Brand"),
        Attribute(name="Roast", type="enum", values=("a", "b"), description="d", multiple=True, max_value_tokens=3),
    ),
)
OBJECTS = [
    SCHEMA,
    SCHEMA.attributes[1],
    EngineConfig(layout="stacked", prompt=PromptTemplate(system="s")),
    PromptTemplate(chat="never"),
    Record("1", "Shoes", {"title": "é", "text": ""}),
    Value("a; b", ("a", "b"), "value", ' ["a", "b"],', 7, 1, -0.5, -1.0, (Evidence("title", 0, 1, "a", "exact"),)),
    RecordResult("1", "Shoes", {"Brand": Value(None, (), "absent")}, "too long", ErrorCode.TOO_LONG),
    ErrorCode.NO_SCHEMA,
]


@table("item", OBJECTS)
def test_data_survives_pickling_and_copying(item: object) -> None:
    assert pickle.loads(pickle.dumps(item)) == item
    assert copy.deepcopy(item) == item


@table("error", [EngineError("a"), ModelError("b"), hpd_core.PromptError("c")])
def test_errors_survive_pickling_and_have_one_root(error: hpd_core.HPDError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found)) == (type(error), str(error))
    assert isinstance(found, hpd_core.HPDError)


def test_data_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        SCHEMA.category = "x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Record("1", "c", {}).id = "2"  # type: ignore[misc]


@table(
    "options",
    [
        {"name": ""},
        {"name": "a", "typ": "string"},
        {"name": "a", "type": "text"},
        {"name": "a", "type": "enum"},
        {"name": "a", "type": "enum", "values": []},
        {"name": "a", "type": "enum", "values": ["x", "x"]},
        {"name": "a", "values": ["x"]},
        {"name": "a", "type": "enum", "values": [1, 2]},
        {"name": "a", "type": "enum", "values": [{"id": "1"}]},
        {"name": "a", "type": "enum", "values": [{"label": "x", "id": 1}]},
        {"name": "a", "type": "enum", "values": ["x", {"label": "x", "id": "1"}]},
        {"name": "a", "type": "number", "unit": {"accept": ["in"]}},
        {"name": "a", "type": "number", "unit": {"want": "cm", "acept": ["in"]}},
        {"name": "a", "type": "number", "unit": 5},
        {"name": "a", "multiple": "yes"},
        {"name": "a", "max_value_tokens": 0},
        {"name": 5},
    ],
)
def test_malformed_attributes_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Attribute.model_validate(options)


def test_malformed_schemas_are_refused() -> None:
    with pytest.raises(ValidationError, match="'Brand' twice"):
        CategorySchema(category="c", attributes=(Attribute(name="Brand"), Attribute(name="Brand")))
    with pytest.raises(ValidationError):
        CategorySchema(category="c", attributes=())
