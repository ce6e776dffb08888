"""Files for a shop: the ones that the run read, filled in, or new ones where the shop takes these."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import ValidationError

from hpd_core import CategorySchema
from pipelines.comparing.compared_run import Side
from pipelines.config.extraction import InputConfig
from pipelines.errors import UsageError
from pipelines.exporting.akeneo import AKENEO_TARGET
from pipelines.exporting.answers import Product
from pipelines.exporting.filled_csv import DelimitedOriginal
from pipelines.exporting.filled_feed import FeedOriginal
from pipelines.exporting.google import GOOGLE_TARGET
from pipelines.exporting.left_out import LeftOut
from pipelines.exporting.outputs import Outputs
from pipelines.exporting.rules import AKENEO_CODE, AKENEO_FILE_BYTES, SHOPIFY_FILE_BYTES
from pipelines.exporting.shopify import HANDLES, SHOPIFY_TARGET
from pipelines.exporting.spool import Spool
from pipelines.exporting.targets import (
    Filler,
    ShopWishes,
    Target,
    TargetColumn,
    all_attributes,
    check_mapping,
    find_place,
)
from pipelines.job.run_plan import PlannedFile
from pipelines.store.folders import open_filesystem

_PACKED = (".gz", ".zst", ".bz2", ".xz", ".lz4")
_DELIMITED = ("csv", "shopify")


class Original(Protocol):
    """A file that the run read, and that is filled in."""

    def fill(
        self, columns: Sequence[TargetColumn], products: Iterator[Product], filler: Filler, overwrites: bool, path: Path
    ) -> None:
        """Writes it to `path` with the products' answers."""


class NewFile(NamedTuple):
    """A file of what the run knows of the products alone.

    Attributes:
        id_column: with their ids; None: the one that the user names.
        has_families: a column says which family a product is of, where the schemas know.
        note: what to know of it.
    """

    suffix: str
    delimiter: str
    id_column: str | None
    has_families: bool
    note: str


@dataclass(frozen=True, slots=True)
class ShopKind:
    """A kind of file.

    Attributes:
        is_original: whether a file with this format, these columns and this delimiter is one of the kind.
        new_file: what is made where the run read none of this kind; None if nothing can be.
        max_bytes: that the shop imports.
    """

    target: Target
    is_original: Callable[[str, Sequence[str], str, ShopWishes], bool]
    new_file: NewFile | None = None
    max_bytes: int | None = None


def _is_shopify(format: str, header: Sequence[str], delimiter: str, wishes: ShopWishes) -> bool:
    return any(find_place(header, name) is not None for name in HANDLES)


def _is_google(format: str, header: Sequence[str], delimiter: str, wishes: ShopWishes) -> bool:
    is_text_feed = format == "csv" and all(find_place(header, name) is not None for name in ("id", "title"))
    return format == "xml" or is_text_feed


def _is_akeneo(format: str, header: Sequence[str], delimiter: str, wishes: ShopWishes) -> bool:
    return format == "csv" and delimiter == ";" and wishes.identifier in header


_SUPPLEMENTAL = NewFile(
    suffix=".tsv",
    delimiter="\t",
    id_column="id",
    has_families=False,
    note="It is a supplemental feed: ids, and what was extracted. Google joins it to your own feed by the id.",
)
_NEW_PRODUCTS = NewFile(
    suffix=".csv",
    delimiter=";",
    id_column=None,
    has_families=True,
    note="Empty cells empty the attribute in Akeneo, too. Run on an export of Akeneo's to have other values kept.",
)
SHOP_KINDS: Mapping[str, ShopKind] = {
    "shopify": ShopKind(SHOPIFY_TARGET, _is_shopify, None, SHOPIFY_FILE_BYTES),
    "google": ShopKind(GOOGLE_TARGET, _is_google, _SUPPLEMENTAL),
    "akeneo": ShopKind(AKENEO_TARGET, _is_akeneo, _NEW_PRODUCTS, AKENEO_FILE_BYTES),
}


@dataclass(frozen=True, slots=True)
class ShopExport:
    """One export into files of a kind. `files` and `notes` are added to."""

    side: Side
    schemas: Mapping[str, CategorySchema]
    kind: ShopKind
    wishes: ShopWishes
    out: str
    left_out: LeftOut
    files: list[str]
    notes: list[str]

    def write(self, spool: Spool, products: Iterable[Product]) -> None:
        """Writes a file for each that the run read and that is of the kind, else a new one.

        Raises `UsageError` if there is no file to fill in and none can be made, or one is not the run's.
        """
        check_mapping(self.wishes.columns, all_attributes(self.schemas))
        originals = dict(self._originals())
        if not originals and self.kind.new_file is not None:
            self._write_new(self.kind.new_file, products)
            return
        if others := [file.name for file in self.side.run.plan.files if file.name not in originals]:
            raise UsageError(
                f"{self.kind.target.name} fills in {next(iter(originals))}, and {others[0]} is no such file: their "
                "products would be lost; run on each by itself"
            )
        spool.add(products)
        names = _file_names(originals)
        if len(names) > 1 and Outputs.of(self.out, _suffix(next(iter(names.values())))).file is not None:
            raise UsageError(f"--out {self.out}: {len(names)} files are filled in, and this names one; name a folder")
        for planned, original in originals.items():
            self._fill(planned, original, names[planned], spool)

    def _originals(self) -> Iterator[tuple[str, Original]]:
        """The files that are filled in, by the name that the run has for them."""
        plan = self.side.run.plan
        if self.wishes.original is not None and len(plan.files) > 1:
            raise UsageError(
                f"--original {self.wishes.original}: the run read {len(plan.files)} files, and this is one; they are "
                "looked for where they were"
            )
        for file in plan.files:
            original = self._original(file)
            if original is not None:
                yield file.name, original
            elif self.kind.new_file is None:
                raise UsageError(
                    f"{self.kind.target.name} fills in a file of its own kind, and {file.name} ({file.format}) is "
                    "none: run on a product CSV of the shop, or export another kind"
                )

    def _original(self, file: PlannedFile) -> Original | None:
        name = self.wishes.original or file.name
        if file.format not in (*_DELIMITED, "xml"):
            if self.wishes.original is not None:
                raise UsageError(f"--original {name}: the run read {file.name} ({file.format}), which has other rows")
            return None
        config = _input_config(self.side)
        id_column = config.id.column if config.id is not None else None
        if self.wishes.original is None:
            _check_size(file, config.anonymous)
        if file.format == "xml":
            if not self.kind.is_original("xml", (), "", self.wishes):
                return None
            return FeedOriginal(name, config.anonymous, checks_ids=_is_id(id_column))
        original = DelimitedOriginal.open(name, config.reading, id_column)
        is_one = self.kind.is_original(file.format, original.header, original.dialect.delimiter, self.wishes)
        return original if is_one else None

    def _fill(self, planned: str, original: Original, name: str, spool: Spool) -> None:
        suffix = _suffix(name)
        outputs = Outputs.of(self.out, suffix)
        name = outputs.file or name
        self._check_not_the_original(outputs.describe(name), self.wishes.original or planned)
        answered = spool.attributes[planned]
        attributes = [each for each in all_attributes(self.schemas) if each.name in answered]
        header = original.header if isinstance(original, DelimitedOriginal) else ()
        columns = self.kind.target.columns(header, attributes, self.wishes)
        filler = Filler(columns, self.schemas, self.left_out)
        with outputs.writing(name) as path:
            original.fill(columns, spool.products(planned), filler, self.wishes.overwrites, path)
            size = path.stat().st_size
        self._wrote(outputs.describe(name), size)
        if note := self.kind.target.note([column for column in columns if column.place is None]):
            self.notes.append(note)

    def _wrote(self, place: str, size: int) -> None:
        self.files.append(place)
        limit = self.kind.max_bytes
        if limit is not None and size > limit:
            self.notes.append(
                f"{place} has {size:,} bytes, and {self.kind.target.name} imports files of {limit:,} at most: cut it "
                "between products."
            )

    def _check_not_the_original(self, place: str, original: str) -> None:
        (out_system, out_path), (filesystem, path) = open_filesystem(place), open_filesystem(original)
        same = type(out_system) is type(filesystem) and os.path.realpath(out_path) == os.path.realpath(path)
        if same:
            raise UsageError(f"--out {self.out}: {place} is the file that the run read; name another")

    def _write_new(self, new: NewFile, products: Iterable[Product]) -> None:
        outputs = Outputs.of(self.out, new.suffix)
        name = outputs.file or f"products{new.suffix}"
        with outputs.writing(name) as path:
            with open(path, "w", encoding="utf-8", newline="") as file:
                csv.writer(file, delimiter=new.delimiter).writerows(self._new_rows(new, products))
            size = path.stat().st_size
        self._wrote(outputs.describe(name), size)
        self.notes.append(new.note)

    def _new_rows(self, new: NewFile, products: Iterable[Product]) -> Iterator[list[str]]:
        """The header and a row a product."""
        columns = self.kind.target.columns((), all_attributes(self.schemas), self.wishes)
        filler = Filler(columns, self.schemas, self.left_out)
        families = {name: schema.id for name, schema in self.schemas.items() if _is_code(schema.id)}
        has_family = new.has_families and bool(families)
        names = [new.id_column or self.wishes.identifier, *(["family"] if has_family else [])]
        for column in columns:
            names += [column.name, *([column.unit.name] if column.unit is not None else [])]
        yield names
        for product in products:
            cells = filler.fill(product)
            row = [product.product_id, *([families.get(product.category) or ""] if has_family else [])]
            for column in columns:
                row.append(cells.text(column) if column in cells.values else "")
                if column.unit is not None:
                    row.append(cells.units.get(column, ""))
            yield row


def _is_code(text: str | None) -> bool:
    return re.fullmatch(AKENEO_CODE, text or "") is not None


def _input_config(side: Side) -> InputConfig:
    settings = side.run.input_settings
    fields = settings.get("fields")
    # A plan keeps the fields as pairs: their order counts.
    given = {**settings, "fields": dict(fields) if isinstance(fields, list) else fields}
    try:
        return InputConfig.model_validate(given)
    except ValidationError as error:
        raise UsageError(f"{side.uri}: its input settings have {error.error_count()} errors: {error}") from error


def _is_id(column: str | None) -> bool:
    return column is not None and column.rpartition(":")[2] == "id"


def _check_size(file: PlannedFile, anonymous: bool) -> None:
    filesystem, path = open_filesystem(file.name, anonymous=anonymous)
    try:
        size = filesystem.info(path)["size"]
    except FileNotFoundError as error:
        raise UsageError(
            f"cannot read {file.name}: no such file; --original names the file that the run read, if it was moved"
        ) from error
    if size != file.size:
        raise UsageError(f"{file.name} has changed since the run; --original names the file that the run read")


def _file_names(originals: Iterable[str]) -> dict[str, str]:
    """What each filled file is called: as it was, without the ending of a packer; numbered where names are doubled."""
    names: dict[str, str] = {}
    for original in originals:
        leaf = original.rstrip("/").rsplit("/", 1)[-1]
        for ending in _PACKED:
            leaf = leaf.removesuffix(ending)
        name, number = leaf, 1
        while name in names.values():
            number += 1
            stem, dot, suffix = leaf.rpartition(".")
            name = f"{stem}-{number}{dot}{suffix}" if dot else f"{leaf}-{number}"
        names[original] = name
    return names


def _suffix(name: str) -> str:
    return f".{name.rpartition('.')[2]}".lower() if "." in name else "."
