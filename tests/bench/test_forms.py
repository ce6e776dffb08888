"""The made-up forms say what their answers are, and the benchmark of them runs."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from bench.json_forms import app, by_engine, leaves
from bench.rivals.vllm_forms import fan_out, recorded
from bench.workloads.forms import SCHEMAS, make_forms
from hpd_core import Engine, check_schema
from hpd_core.json_schema.questions import Questions
from hpd_core.json_schema.schema_reader import read_schema
from hpd_core.json_schema.validation import checker


def test_every_answer_fits_its_schema_and_stands_in_its_document() -> None:
    forms = make_forms(200)
    assert {form.name for form in forms} == set(SCHEMAS)
    for form in forms:
        assert checker(form.schema)(form.answer) == []
        for path, value in leaves(dict(form.answer)):
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                assert str(value) in form.document, path
    assert max(len(form.answer["lines"]) for form in forms if form.name == "invoice") == 20
    assert {len(form.answer["devices"]) for form in forms if form.name == "ticket"} == {0, 1, 2, 3}
    assert [form.document for form in make_forms(9)] == [form.document for form in make_forms(9)]


def test_all_schemas_are_taken() -> None:
    assert {name: check_schema(schema).branches for name, schema in SCHEMAS.items()} == {
        "invoice": 12,
        "ticket": 7,
        "event": 8,
        "visit": 8,
        "résumé": 7,
    }


def test_the_benchmark_runs(tiny_model_dir: Path) -> None:
    found = CliRunner().invoke(app, ["--model", str(tiny_model_dir), "--documents", "3", "--most", "4"])
    assert found.exit_code == 0, found.output
    rows = [line.split() for line in found.stdout.splitlines() if line.startswith(("hpd", "generate"))]
    assert [(row[0], len(row)) for row in rows] == [("hpd", 5), ("generate", 5)]


def test_a_request_for_each_field_is_as_long_as_what_the_engine_wrote(tiny_model_dir: Path) -> None:
    forms = make_forms(5)
    with Engine.from_pretrained(str(tiny_model_dir)) as engine, recorded() as waves:
        outcome = by_engine(engine, forms)
    requests = [fan_out(wave) for wave in waves]
    assert sum(sum(each.limits) for each in requests) == outcome.num_tokens
    assert [len(each.prompts) for each in requests] == [len(each.limits) for each in requests]
    first = [Questions(read_schema(form.schema)).next_wave() for form in forms]
    assert len(requests[0].prompts) == sum(map(len, first))
    assert all(min(each.limits) >= 1 for each in requests)
