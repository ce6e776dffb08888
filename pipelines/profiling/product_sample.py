"""Sample of a catalog's products: their categories, and the key-value pairs of their texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpd_core.types import is_encodable
from pipelines.catalog.cells import field_text
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.paths import value_at
from pipelines.catalog.rows import row_category
from pipelines.config.catalog_input import HtmlMode, InputConfig
from pipelines.config.loading import PATH_SEPARATOR, Mapped, parse_config
from pipelines.config.yaml_files import load_yaml
from pipelines.errors import UsageError
from pipelines.profiling.catalog_look import Look, first_rows, look_into, source_of
from pipelines.profiling.guesses import Guesses, guess
from pipelines.profiling.key_values import cell_pairs, text_pairs

WHOLE_CATALOG = "products"
"""Category of a catalog without categories."""

_CONFIG_ENDINGS = (".yaml", ".yml")
_MAX_ROWS = 10_000
_GOLD_TEXTS = frozenset({"product_id", "category"})


ProductPairs = Sequence[tuple[str, str]]
"""Keys and values in the texts of a product."""


@dataclass(frozen=True, slots=True)
class ProductSample:
    """Sampled products by category, largest category first.

    Attributes:
        notes: sentences on what was guessed about the catalog.
    """

    products: Mapping[str, Sequence[ProductPairs]]
    notes: Sequence[str] = ()


def read_sample(source: InputConfig) -> ProductSample:
    """Sample the products of a catalog, given directly or by a job's configuration (a YAML file).

    Raises:
        UsageError: it cannot be read, holds labelled products, or has no text.
    """
    (path,) = source.path
    if path.lower().endswith(_CONFIG_ENDINGS):
        if source != source_of(path):
            raise UsageError(f"{path} is a configuration: how its catalog is read is said in its section 'input'")
        config = _input_of(path)
        # What is the same for every product tells none from another.
        mapped = {name: each.columns for name, each in config.fields.items() if each.columns}
        rows = ((_category(row, config), _cells(row, mapped)) for row in _rows(config))
        return ProductSample(_by_category(rows, path, config.html))
    look = look_into(source)
    if look.sample and _is_labelled(look.sample[0]):
        raise UsageError(
            f"{path}: these are labelled products, whose attributes are known: "
            f"hpd schema import {path} --from gold makes a schema of them"
        )
    guesses = guess(look.columns)
    columns = _texts(look, guesses)
    if not columns:
        raise UsageError(f"{path}: no column looks like a text; write a configuration (hpd init) and name it here")
    category = guesses.category.column if guesses.category else None
    notes = [f"read as texts: {', '.join(columns)}; as category: {category or 'none, all are of one'}"]
    left_out = [f"left out {look.left_out}"] if look.left_out.files else []
    return ProductSample(sampled_products(look, guesses), [*left_out, *look.told(), *notes])


def sampled_products(look: Look, guesses: Guesses) -> dict[str, list[ProductPairs]]:
    """Return the sampled rows by guessed category, the largest first. Raises `UsageError` if none has a text."""
    category = Mapped(column=guesses.category.column) if guesses.category else Mapped(text=WHOLE_CATALOG)
    config = look.source.model_copy(update={"category": category})
    mapped = {column: (column,) for column in _texts(look, guesses)}
    rows = ((row_category(row, config), _cells(row, mapped)) for row in look.sample)
    return _by_category(rows, config.path[0], "auto")


def _texts(look: Look, guesses: Guesses) -> list[str]:
    nested = [column.name for column in look.columns if "nested" in column.kinds]
    return [*(field.column for field in guesses.fields), *nested]


def _is_labelled(row: Mapping[str, Any]) -> bool:
    """Return whether a row is a line of a gold file, in any of its layouts (quality/gold.py)."""
    if "category" not in row:
        return False
    if isinstance(row.get("target_scores"), Mapping):
        return True
    if isinstance(row.get("attributes"), list):
        return any(isinstance(each, Mapping) and {"key", "evidences"} <= each.keys() for each in row["attributes"])
    # A catalog may have a column of this name, beside its texts.
    texts = {name for name, cell in row.items() if isinstance(cell, str)}
    return isinstance(row.get("values"), Mapping) and ("input" in row or texts <= _GOLD_TEXTS)


def _input_of(path: str) -> InputConfig:
    """Read the section `input` of a job's configuration. Raises `UsageError`."""
    document = load_yaml(path)
    section = document.get("input") if isinstance(document, dict) else None
    if not isinstance(section, dict):
        raise UsageError(f"{path}: no section 'input' in it; name a catalog, or the configuration of a job over one")
    return parse_config(InputConfig, section, f"{path}, input")


def _rows(config: InputConfig) -> Iterator[Mapping[str, Any]]:
    """Yield the first rows of each of the catalog's files, the same number from each."""
    files = scan_sources(config).files
    share = -(-_MAX_ROWS // max(1, len(files)))
    for file in files:
        yield from first_rows(file, config.columns, config, share)


def _category(row: Mapping[str, Any], config: InputConfig) -> str | None:
    """Return the row's category; if the configuration names a level, that part of its path, or None."""
    category, mapped = row_category(row, config), config.category
    if category is None or mapped.level is None:
        return category
    parts = [part.strip() for part in category.split(mapped.separator or PATH_SEPARATOR)]
    index = mapped.level - 1 if mapped.level > 0 else len(parts) + mapped.level
    return parts[index] if 0 <= index < len(parts) else None


def _cells(row: Mapping[str, Any], mapped: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
    """Return the cells of each field."""
    return {name: [value_at(row, column) for column in columns] for name, columns in mapped.items()}


def _by_category(
    rows: Iterable[tuple[str | None, Mapping[str, Sequence[Any]]]], source: str, html: HtmlMode
) -> dict[str, list[ProductPairs]]:
    found: dict[str, list[ProductPairs]] = defaultdict(list)
    for category, cells in rows:
        if category and (product := _product(cells, html)) is not None:
            found[category].append(product)
    if not found:
        raise UsageError(f"{source}: no row has a category and a text")
    return dict(sorted(found.items(), key=lambda each: -len(each[1])))


def _product(fields: Mapping[str, Sequence[Any]], html: HtmlMode) -> ProductPairs | None:
    found = [pair for cells in fields.values() for cell in cells for pair in cell_pairs(cell)]
    texts = ["\n".join(filter(None, map(_text, cells))) for cells in fields.values()]
    found += [pair for text in texts for pair in text_pairs(text, html)]
    return found if found or any(texts) else None


def _text(cell: Any) -> str:
    text = field_text(cell, "\n") or ""
    return text if is_encodable(text) else ""
