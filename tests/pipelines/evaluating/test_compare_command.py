"""The command: its line of JSON, other storages, and one line for what cannot be compared."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.evaluating.comparisons import ask, write_gold
from tests.pipelines.evaluating.made_runs import Row, write_run


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    rows = [Row("p0", {"Brand": "Acme"})]
    a = write_run(tmp_path / "a", rows)
    b = write_run(tmp_path / "b", rows)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "file").write_text("x")
    planned = write_run(tmp_path / "planned", rows, unfinished_shards=1)
    stranger = write_run(tmp_path / "stranger", [Row("q", {"Brand": "Acme"})], files={"else.parquet": "f"})
    gold = write_gold(tmp_path / "gold.jsonl", {"other": {"Brand": ["Acme"]}})
    broken = write_run(tmp_path / "broken", rows)
    (tmp_path / "broken" / "attributes" / "part-000000.parquet").write_bytes(b"no Parquet")
    torn = write_run(tmp_path / "torn", rows)
    (tmp_path / "torn" / "products" / "part-000000.parquet").unlink()
    (tmp_path / "torn" / "_plan.json").write_text((tmp_path / "a" / "_plan.json").read_text())
    mangled = write_run(tmp_path / "mangled", rows)
    (tmp_path / "mangled" / "_plan.json").write_text('{"version": 1, "files": [')
    for arguments, message in [
        ((a, str(tmp_path / "nowhere")), "there is no run in"),
        ((a, str(tmp_path / "empty")), "there is no run in"),
        ((a, str(tmp_path / "file")), "it is a file, a folder is needed"),
        ((a, a + "/"), "are the same folder"),
        ((a, str(tmp_path / "link")), "are the same folder"),
        ((a, planned), "has not committed anything yet"),
        ((a, stranger), "nothing in common: no product id"),
        ((a, broken), "part-000000.parquet"),
        ((a, torn), "products/part-000000.parquet is missing"),
        ((a, mangled), "cannot read"),
        ((a, b, "--gold", str(tmp_path / "nowhere.jsonl")), "no such gold file"),
        ((a, b, "--gold", gold), "does not belong to"),
        ((a, "nothing://there"), "nothing"),
        ((a, b, "--out", str(tmp_path / "file")), "file"),
    ]:
        code, text, error = ask(*arguments)
        assert code == 2, (arguments, text)
        assert message in error, (arguments, error)
        assert error.startswith("Error: ")
        assert error.count("\n") == 1, error
