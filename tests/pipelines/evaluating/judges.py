"""A run to be judged, whose right answers are known, and a server that judges as its script says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner, Result

from pipelines.evaluate import app
from tests.pipelines.evaluating.made_runs import ABSENT, INVALID, Answer, Row, write_run
from tests.pipelines.labelling.served_teacher import Reply

# Text, what the run answers, and what a judge has to say of it.
PRODUCTS: list[tuple[str, dict[str, Answer], dict[str, str]]] = [
    ("Acme coffee, dark roast", {"Brand": "Acme", "Roast": "dark"}, {"Brand": "correct", "Roast": "correct"}),
    ("Velor coffee, light roast", {"Brand": "Velor", "Roast": ABSENT}, {"Brand": "correct", "Roast": "missing"}),
    ("Kona coffee", {"Brand": "Kona", "Roast": ABSENT}, {"Brand": "correct", "Roast": "correct null"}),
    ("Zeta coffee", {"Brand": "Zeta", "Roast": "dark"}, {"Brand": "correct", "Roast": "hallucination"}),
    ("Nuno coffee, light roast", {"Brand": "coffee", "Roast": "dark"}, {"Brand": "incorrect", "Roast": "incorrect"}),
    ("Peet coffee, dark roast", {"Brand": INVALID, "Roast": "dark"}, {"Brand": "missing", "Roast": "correct"}),
]
COUNTS = {"correct": 6, "correct null": 1, "incorrect": 2, "missing": 2, "hallucination": 1}
GOLD = {"Acme": "dark", "Velor": "light", "Kona": None, "Zeta": None, "Nuno": "light", "Peet": "dark"}
PRICES = ("price_per_million_input_tokens=10", "price_per_million_output_tokens=100")


def write_judged_run(folder: Path, times: int = 1, texts: Sequence[str] = ()) -> str:
    """The products, `times` over, in a catalog that can be read back.

    Args:
        texts: instead of theirs, with the first product's answers.
    """
    products = PRODUCTS[:1] * len(texts) or PRODUCTS * times
    catalog = folder / "catalog.parquet"
    texts = texts or [f"{text} {number}" for number, (text, _, _) in enumerate(products)]
    pq.write_table(pa.table({"title": texts, "c": ["Coffee"] * len(texts)}), catalog)
    rows = [
        Row(f"p{n}", answers, text=text) for n, (text, (_, answers, _)) in enumerate(zip(texts, products, strict=True))
    ]
    config = {"input": {"path": [str(catalog)], "category": "c", "fields": [["title", "title"]]}}
    return write_run(folder / "run", rows, files={str(catalog): "f"}, config=config)


def write_gold(folder: Path) -> str:
    lines = [
        {"product_id": f"p{n}", "category": "Coffee", "values": {"Brand": [brand], "Roast": roast and [roast]}}
        for n, (brand, roast) in enumerate(GOLD.items())
    ]
    path = folder / "gold.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


def product_of(request: dict[str, Any]) -> int:
    """The number of the product that a request is about."""
    asked = next(message["content"] for message in request["messages"] if message["role"] == "user")
    found = re.search(r"title: .* (\d+)\n", asked)
    assert found is not None
    return int(found[1])


def verdict(request: dict[str, Any], **changes: object) -> dict[str, object]:
    """The right classes of the product that is asked about."""
    return PRODUCTS[product_of(request) % len(PRODUCTS)][2] | changes


def judged(classes: object) -> Reply:
    return Reply(f'Brand: The value "x" is fine because {{it}} is.\n<result>\n{json.dumps(classes)}\n</result>')


def good_judge(request: dict[str, Any], _: int = 0) -> Reply:
    return judged(verdict(request))


def ask(run: str, url: str, *arguments: object, keys: tuple[str, ...] = (), model: str = "m") -> Result:
    """`hpd evaluate --judge`."""
    # The servers are threads of this process: on a busy machine one may not be run for long.
    changes = (f"model={model}", "timeout_seconds=600", *keys)
    options = [part for change in changes for part in ("--judge-set", change)]
    return CliRunner().invoke(app, [run, "--judge", url, *options, *map(str, arguments)])


def summary(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])["judge"]
    return found
