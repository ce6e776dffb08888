"""A comparison as files: one HTML page that opens offline, the same as JSON and as Markdown."""

from __future__ import annotations

import json

from pipelines.comparing.comparison import RunComparison
from pipelines.folders import Folder


def write_pages(comparison: RunComparison, uri: str) -> list[str]:
    """Writes `compare.json` to the folder, and returns where. Raises `OSError` if it cannot be written."""
    folder = Folder(uri)
    pages = {"compare.json": json.dumps(comparison.to_dict(), ensure_ascii=False, indent=2)}
    for name, text in pages.items():
        folder.write(name, text.encode())
    return [folder.describe(name) for name in pages]
