"""Google's product taxonomy: a text file of paths, with ids or without, joined with the attributes of product feeds.

    # Google_Product_Taxonomy_Version: 2021-09-21
    166 - Apparel & Accessories
    1604 - Apparel & Accessories > Clothing

The taxonomy has no attributes. Those of a product feed are in `google_feed.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pipelines.errors import UsageError
from pipelines.schemas.importing.google_feed import APPAREL_ONLY, feed_attributes
from pipelines.schemas.importing.imported import PATH_SIGN, Imported, SourceCategory, one_line
from pipelines.schemas.importing.sources import Document

_VERSION = re.compile(r"#\s*Google_Product_Taxonomy_Version:\s*(\S+)")
_LINE = re.compile(r"(?:(\d+)\s+-\s+)?(\S.*)")
_MAX_SAMPLE = 20  # lines that tell whether a file without a version is a taxonomy
_APPAREL_ID, _APPAREL_NAME = "166", "Apparel & Accessories"


def recognises(document: Document) -> bool:
    """Return whether the file is a taxonomy, by its version line or because its first lines are paths."""
    text = document.text.lstrip()
    if _VERSION.match(text):
        return True
    if text[:1] in ("{", "[") or document.rows:
        return False
    lines = [line.strip() for line in text.split("\n")[:_MAX_SAMPLE] if line.strip()]
    if len(lines) < 2:
        return False
    if all(re.match(r"\d+\s+-\s+\S", line) for line in lines):
        return True
    return any(PATH_SIGN in line for line in lines) and all(
        _is_below(line, lines) for line in lines if PATH_SIGN in line
    )


def _is_below(line: str, lines: Sequence[str]) -> bool:
    return line.rsplit(PATH_SIGN, 1)[0] in lines


def read(documents: Sequence[Document]) -> Imported:
    """Read the taxonomy; every category has the feed's attributes. Raises `UsageError` for any other line."""
    categories = [category for document in documents for category in _categories(document)]
    if not categories:
        raise UsageError(f"{documents[0].name}: no category is in it")
    found = (_VERSION.match(document.text.lstrip()) for document in documents)
    version = next((match[1] for match in found if match), "")
    return Imported(
        f"Google's product taxonomy {version}".strip(),
        feed_attributes(),
        categories,
        [
            "the taxonomy has no attributes: these are what Google Merchant Center's product data specification names, "
            "strike out what your texts do not say"
        ],
    )


def _categories(document: Document) -> Iterator[SourceCategory]:
    by_path: dict[tuple[str, ...], str] = {}
    everything = tuple(feed_attributes())
    for number, line in enumerate(document.text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        path = tuple(one_line(part) for part in match[2].split(PATH_SIGN.strip())) if match else ()
        if match is None or not all(path):
            raise UsageError(f"{document.name}, line {number}: {line.strip()!r} is no path such as 'Home > Kitchen'")
        identity = match[1] or PATH_SIGN.join(path)
        if path in by_path:
            raise UsageError(f"{document.name}, line {number}: {PATH_SIGN.join(path)!r} is there twice")
        above = by_path.get(path[:-1])
        by_path[path] = identity
        # A child has what its parent has; an apparel's root has more than others.
        is_apparel = (by_path.get(path[:1]) == _APPAREL_ID) or path[0] == _APPAREL_NAME
        own = tuple(each for each in everything if is_apparel or each not in APPAREL_ONLY)
        # A feed names a category by its id as often as by its path.
        aliases = (match[1],) if match[1] else ()
        yield SourceCategory(identity, path, () if above else own, above, aliases, match[1])
