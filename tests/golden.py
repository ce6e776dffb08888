"""Record what the product answers before code is moved, and compare after: no answer may change unnoticed.

    git worktree add /tmp/base COMMIT && cp tests/golden.py /tmp/base/tests/
    (cd /tmp/base && python -m tests.golden record /tmp/golden.json)
    python -m tests.golden compare /tmp/golden.json [NAME ...]

Both on one machine: log-probabilities differ between processors. Takes some six minutes on two cores, the most of it
the sample with the embedded model. Exit code 1 where something differs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
FIRST = "--first" if "first:" in (ROOT / "pipelines/extract.py").read_text() else "--limit"
"""The option for the first rows, now and at the base."""
UNSTABLE = re.compile(
    r"seconds|started|finished|_at$|node_id|actor_id|attempt|price|cost|billed|usd|instance|share$|hours|progress"
    r"|^time$|last_commit|per_second|cached_tokens$|bytes_|num_steps|versions"
)
TOKENS = (
    "num_rows",
    "num_products",
    "num_dead_letters",
    "prefix_tokens",
    "document_tokens",
    "key_tokens",
    "value_tokens",
)
KINDS = ("csv", "xlsx", "jsonl", "wide.parquet", "shopify", "google", "akeneo")
ODD_ROWS: list[Any] = [
    {"id": "a", "category": "Things", "title": "Lamp 10 x 20 x 30 in, 1,500 g, 5 1/2 ft, 12,5 mm, 10.000 mAh, red"},
    {
        "id": "b",
        "category": "thíngs ",
        "title": "<p>Söckchen &amp; Schuhe</p> 8 GB RAM, 500ml, 2.5e6 Hz, \u201cblue\u201d",
    },
    {"id": "c", "category": "Things", "title": ["Box", "of 12", None], "extra": {"x": [1, 2]}},
    {"id": None, "category": "Things", "title": "no id"},
    {"id": "e", "category": None, "title": "no category"},
    {"id": "f", "category": "Unknown", "title": "no schema"},
    {"id": "g", "category": "Things", "title": ""},
    {"id": 7, "category": "Things", "title": 12.99},
    {"id": "a", "category": "Things", "title": "the same id again, \ud83d\ude00 waterproof: yes"},
    '{"id": "broken", "category"',
]
ODD_SCHEMA = {
    "categories": {
        "Things": [
            {"name": "Brand"},
            {"name": "Colour", "type": "enum", "values": ["red", "blue"]},
            {"name": "Length", "type": "number", "unit": "cm"},
            {"name": "Weight", "type": "number", "unit": "kg"},
            {"name": "Waterproof", "type": "boolean"},
            {"name": "Parts", "multiple": True},
        ]
    }
}


def command(*arguments: str, cwd: Path = ROOT) -> dict[str, Any]:
    """Exit code, stdout's JSON (or text) and the errors of `hpd`."""
    code = "import sys; from pipelines.cli import main; sys.argv[0] = 'hpd'; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    try:
        said: Any = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        said = done.stdout
    return {"code": done.returncode, "said": said, "error": done.stderr if done.returncode else ""}


def extract(output: Path, changes: dict[str, Any], *options: str, config: str = "configs/demo.yaml") -> dict[str, Any]:
    """A run of that configuration."""
    changes = {
        "shards.ramp": [0.25, 0.5]
    } | changes  # as it was by default at 6f2b5ec8: rows stand in order of the shards
    sets = [part for key, value in changes.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    end = ("--set", f"output={output}", "--run-id", "golden", "--json", *options)
    return command("extract", "--config", config, *sets, *end)


def tables(output: Path, *, digest: bool = False) -> dict[str, Any]:
    """The committed rows in the catalog's order, without times and processes; `digest`: a hash of each table."""
    found: dict[str, Any] = {}
    for name in ("attributes", "products", "dead_letter", "metrics"):
        rows = pq.ParquetDataset(sorted((output / name).glob("*.parquet"))).read().to_pylist()
        if name == "metrics":
            rows = [{"of": sum((row.get(column) or 0) for row in rows)} for column in TOKENS]
        else:
            rows = [{key: value for key, value in row.items() if not UNSTABLE.search(key)} for row in rows]
            rows.sort(
                key=lambda row: (
                    row["source_file"],
                    row["source_row"],
                    row.get("attribute", ""),
                    str(row.get("value_index")),
                )
            )
        text = json.dumps(rows, ensure_ascii=True, default=str).replace(str(output.parent), "FOLDER")
        found[name] = hashlib.sha256(text.encode()).hexdigest() if digest else json.loads(text)
        found[f"{name} rows"] = len(rows)
    return found


def exported(run: Path, folder: Path) -> dict[str, Any]:
    """Every kind of export of the run, whole."""
    found = {}
    for kind in KINDS:
        out = folder / "export" / kind
        found[kind] = command("export", str(run), "--to", kind, "--out", str(out), "--all", "--json")
        for path in sorted(out.rglob("*")) if out.is_dir() else [out]:
            if path.is_file():
                found[f"{kind} {path.name}"] = contents(path)
    return found


def contents(path: Path) -> Any:
    """A file as JSON."""
    if path.suffix == ".parquet":
        return json.loads(json.dumps(pq.read_table(path).to_pylist(), default=str))
    if path.suffix == ".xlsx":
        from python_calamine import CalamineWorkbook

        book = CalamineWorkbook.from_path(str(path))
        return {
            name: json.loads(json.dumps(book.get_sheet_by_name(name).to_python(), default=str))
            for name in book.sheet_names
        }
    return path.read_text(encoding="utf-8")


# What is recorded


def sample(folder: Path) -> dict[str, Any]:
    """36 products with the embedded model: tables, exports, and what judges them."""
    run = folder / "run"
    said = extract(run, {"engine.dtype": "float32"}, FIRST, "36")
    found = {"extract": {"code": said["code"], "totals": said["said"].get("totals", said["said"])}}
    found["totals"] = found.pop("extract")
    found |= {"tables": tables(run), "again": extract(run, {"engine.dtype": "float32"}, FIRST, "36")["code"]}
    found["exports"] = exported(run, folder)
    for name, arguments in {
        "evaluate": ("evaluate", str(run), "--gold", "sample/gold.jsonl", "--json"),
        "compare": ("evaluate", str(run), str(run), "--json"),
        "normalise": ("normalise", str(run), "--schemas", "sample/schemas.yaml", "--json"),
        "report": ("report", str(run), "--json"),
        "status": ("status", str(run), "--json"),
    }.items():
        found[name] = command(*arguments)
    return found


def odd_rows(folder: Path) -> dict[str, Any]:
    """Rows that shops have, as JSONL and as CSV, and errors of configurations."""
    (folder / "schemas.yaml").write_text(json.dumps(ODD_SCHEMA))
    lines = [row if isinstance(row, str) else json.dumps(row) for row in ODD_ROWS]
    (folder / "c.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "c.csv").write_text(
        'id;category;title\n1;Things;"Lamp; 3,5 kg\nred"\n2;Things\n3;Things;a;b\n"4;Things;open\n'
    )
    found: dict[str, Any] = {}
    for name in ("c.jsonl", "c.csv"):
        base = {
            "schemas": str(folder / "schemas.yaml"),
            "input.path": str(folder / name),
            "input.id": "id",
            "input.fields": ["title"],
            "max_dead_letter_share": 1,
        }
        for kind in ("made-up", "hpd"):
            run = folder / f"{name}-{kind}"
            said = extract(run, base | {"decoding": kind, "engine.dtype": "float32"})
            found[f"{name} {kind}"] = [said["code"], tables(run) if (run / "attributes").exists() else said]
        found[f"{name} plan"] = extract(folder / "none", base, "--dry-run")
    for name, change in {
        "no key": {"engine.lay": "tree"},
        "no column": {"input.id": "nope"},
        "no file": {"input.path": "nowhere.csv"},
        "no model": {"model": "/nowhere/model"},
        "no schema": {"schemas": "nowhere.yaml"},
    }.items():
        found[name] = extract(folder / "none", base | change)
    return found


def made_up(folder: Path) -> dict[str, Any]:
    """20,000 rows without a model, over several files; then a night that takes them over."""
    sample_rows = pq.read_table(ROOT / "sample/products.parquet")
    for part in range(4):
        picked = sample_rows.take([(part * 31 + number) % sample_rows.num_rows for number in range(5000)])
        ids = [f"{part}-{number}" for number in range(5000)]
        index = picked.column_names.index("product_id")
        (folder / "catalog").mkdir(exist_ok=True)
        pq.write_table(
            picked.set_column(index, "product_id", [ids]), folder / f"catalog/{part}.parquet", row_group_size=700
        )
    changes = {"input.path": str(folder / "catalog"), "decoding": "made-up", "shards.target_tokens": 100_000}
    first = extract(folder / "one", changes)
    second = extract(folder / "two", changes, "--base", str(folder / "one"))
    return {
        "codes": [first["code"], second["code"]],
        "one": tables(folder / "one", digest=True),
        "two": tables(folder / "two", digest=True) | {"changes": second["said"].get("changes")},
    }


def engine(folder: Path) -> dict[str, Any]:
    """Raw answers and log-probabilities of tiny random models, by every way of decoding."""
    from hpd_core import Attribute, AutoregressiveBaseline, CategorySchema, Engine, EngineConfig
    from tests.core.families import build_model
    from tests.core.products import SCHEMAS, products
    from tests.tiny_model import build_tiny_model, build_tokenizer

    model = str(build_tiny_model(folder / "tiny"))
    records = products(30)
    plain = {"dtype": "float32", "device": "cpu", "max_value_tokens": 8}
    copied = CategorySchema(
        category="Shoes", attributes=(Attribute(name="Brand", verbatim=True), Attribute(name="Size"))
    )

    def answers(engine: Any, schemas: Any = SCHEMAS) -> Any:
        with engine:
            results = engine.extract(records, schemas)
        return [
            [
                r.id,
                r.error and r.error.code,
                {
                    n: [v.raw, v.status, list(v.items), v.num_tokens, v.logprob_mean, v.logprob_min, v.probability]
                    for n, v in r.values.items()
                },
            ]
            for r in results
        ]

    found = {
        name: answers(Engine.from_pretrained(model, EngineConfig(**plain, **options)), schemas)
        for name, options, schemas in (
            ("tree", {}, SCHEMAS),
            ("stacked", {"layout": "stacked"}, SCHEMAS),
            ("free", {"constrain_values": False}, SCHEMAS),
            ("both ways", {"document_attention": "bidirectional"}, SCHEMAS),
            ("not scored", {"max_scored_tokens": 0}, SCHEMAS),
            ("verbatim", {}, SCHEMAS | {"Shoes": copied}),
        )
    }
    found["ar"] = answers(AutoregressiveBaseline.from_pretrained(model, EngineConfig(**plain)))
    for family in ("qwen3", "gemma3"):
        found[family] = answers(Engine(build_model(family, vocab_size=400), build_tokenizer(), EngineConfig(**plain)))
    return found


def serving(folder: Path) -> dict[str, Any]:
    """Answers of `hpd serve` with the embedded model, and of requests that it refuses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "import sys; from pipelines.cli import main; sys.argv[0] = 'hpd'; main()"
    options = ["serve", "--model", "smollm2", "--port", str(port), "--set", "engine.dtype=float32"]
    server = subprocess.Popen(
        [sys.executable, "-c", code, *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "amount": {"type": "number"},
            "paid": {"type": "boolean"},
            "tags": {"type": "array", "items": {"enum": ["new", "old"]}},
        },
        "required": ["name", "amount", "paid", "tags"],
    }
    wish = {"type": "json_schema", "json_schema": {"name": "invoice", "schema": schema}}
    ask = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "Invoice for Ada: 12 lamps, 96.50 EUR, paid."}],
        "response_format": wish,
    }
    try:
        found = {}
        for name, body in {
            "ask": ask,
            "no schema": {key: value for key, value in ask.items() if key != "response_format"},
            "two": ask | {"n": 2},
            "stranger": ask | {"model": "gpt-4"},
        }.items():
            found[name] = _post(f"http://127.0.0.1:{port}/v1/chat/completions", body)
        return found
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _post(url: str, body: Any) -> Any:
    for _ in range(240):
        try:
            request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                found = json.load(answer)
            return {key: found[key] for key in ("choices", "usage", "hpd") if key in found}
        except urllib.error.HTTPError as error:
            return [error.code, json.load(error)]
        except OSError:
            time.sleep(0.5)
    raise RuntimeError("the server does not start")


CASES: dict[str, Callable[[Path], Any]] = {case.__name__: case for case in (engine, odd_rows, sample, made_up, serving)}


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where two records differ; numbers of arithmetic in floating point may differ in their last digits."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if not UNSTABLE.search(key):
                yield from differences(old.get(key, "(none)"), new.get(key, "(none)"), f"{place}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        if place.endswith("/categories"):  # they stand in the order of their seconds
            old, new = (sorted(each, key=lambda one: str(one["category"])) for each in (old, new))
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{place}/{index}")
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=1e-4, abs_tol=1e-4):
            yield f"{place}: {old} -> {new}"
    elif old != new:
        yield f"{place}: {str(old)[:300]!r} -> {str(new)[:300]!r}"


def record(name: str) -> Any:
    """Return what the case gives now, without the temporary folder's name."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        text = json.dumps(CASES[name](Path(folder)), default=str)
        return json.loads(text.replace(folder, "FOLDER").replace(str(ROOT), "ROOT"))


def main(what: str, file: str, *names: str) -> int:
    """`record` or `compare`, all cases or these."""
    path, wanted, num_different = Path(file), names or tuple(CASES), 0
    known = json.loads(path.read_text()) if path.exists() else {}
    for name in wanted:
        began, now = time.monotonic(), record(name)
        found = [] if what == "record" else list(differences(known[name], now, name))
        num_different += len(found)
        said = f"{len(found)} differences" if what == "compare" else "recorded"
        print(f"{name}: {said}, {time.monotonic() - began:.0f} s", flush=True)
        print("".join(f"  {line}\n" for line in found[:60]), end="", flush=True)
        if what == "record":
            path.write_text(json.dumps(known := known | {name: now}))
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
