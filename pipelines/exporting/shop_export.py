"""Files for a shop: the run's input files, filled in, or new files if the shop takes these."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsspec.implementations.local import LocalFileSystem
from pydantic import ValidationError

from hpd_core import CategorySchema
from pipelines.catalog.staging import hash_content, measure
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from pipelines.exporting.answers import Answers, ExportedProduct, LeftOutAnswers
from pipelines.exporting.details import Detail, write_details
from pipelines.exporting.filled_csv import DelimitedOriginal
from pipelines.exporting.outputs import Outputs, check_destination
from pipelines.exporting.targets import (
    Filler,
    NewFile,
    Original,
    Shop,
    ShopWishes,
    TargetColumn,
    all_attributes,
    check_columns,
    check_kept,
    check_mapping,
    check_names,
)
from pipelines.job.run import Run
from pipelines.job.run_plan import PlannedFile
from pipelines.store.folders import open_filesystem


@dataclass(frozen=True, slots=True)
class ShopExport:
    """Export into files of one kind. It appends to `files` and `notes`."""

    side: Run
    schemas: Mapping[str, CategorySchema]
    shop: Shop
    wishes: ShopWishes
    out: str
    forces: bool
    left_out: LeftOutAnswers
    files: list[str]
    notes: list[str]

    def write(self, answers: Answers) -> None:
        """Write a file for each input file of the kind; a new file if there is none.

        Raises `UsageError` if there is no file to fill in and none can be made, or one is not the run's.
        """
        check_mapping(self.wishes.columns, all_attributes(self.schemas))
        originals = dict(self._originals())
        if not originals and self.shop.new_file is not None:
            self._write_new(self.shop.new_file, answers)
            return
        if others := [file.name for file in self.side.plan.files if file.name not in originals]:
            raise UsageError(
                f"{self.shop.name} fills in {next(iter(originals))}, and {others[0]} is no such file: their "
                "products would be lost; run on each by itself"
            )
        names = file_names(originals)
        outputs = Outputs.of(self.out, _suffix(next(iter(names.values()))))
        if outputs.file is not None and len(names) > 1:
            raise UsageError(f"--out {self.out}: {len(names)} files are filled in, and this names one; name a folder")
        self._check_destination(outputs, tuple(names.values()))
        for planned, original in originals.items():
            self._fill(planned, original, names[planned], answers)

    def _originals(self) -> Iterator[tuple[str, Original]]:
        """Yield the files to fill in, with the names that the run has for them."""
        plan = self.side.plan
        if self.wishes.original is not None and len(plan.files) > 1:
            raise UsageError(
                f"--original {self.wishes.original}: the run read {len(plan.files)} files, and this is one; they are "
                "looked for where they were"
            )
        for file in plan.files:
            original = open_original(self.side, file, self.shop, self.wishes)
            if original is not None:
                yield file.name, original
            elif self.shop.new_file is None:
                raise UsageError(
                    f"{self.shop.name} fills in a file of its own kind, and {file.name} ({file.format}) is "
                    "none: run on a product CSV of the shop, or export another kind"
                )

    def _check_destination(self, outputs: Outputs, names: Collection[str]) -> None:
        written = names if outputs.file is None else (outputs.file,)
        check_destination(self.side, self.wishes.original, outputs, written, self.forces)

    def _fill(self, planned: str, original: Original, name: str, answers: Answers) -> None:
        suffix = _suffix(name)
        outputs = Outputs.of(self.out, suffix)
        name = outputs.file or name
        columns = self._columns(original.header, original.id_columns, answers.attributes(planned))
        filler = Filler(columns, self.schemas, self.left_out)
        with outputs.writing(name) as path:
            original.fill(columns, answers.products(planned), filler, self.wishes.overwrites, path)
            size = path.stat().st_size
        self._wrote(outputs.describe(name), size)
        if note := self.shop.note([column for column in columns if column.place is None]):
            self.notes.append(note)

    def _columns(
        self, header: Sequence[str], id_columns: Sequence[str], answered: Collection[str] | None = None
    ) -> list[TargetColumn]:
        """Return the columns of the attributes that have an answer, or of all attributes.

        Names of all attributes are compared, so that a conflict does not depend on what this run has found.
        """
        columns = self.shop.columns(header, all_attributes(self.schemas), self.wishes)
        check_names(columns, self.shop, self.wishes)
        columns = [column for column in columns if answered is None or column.attribute in answered]
        check_kept(columns, [*id_columns, *self.shop.id_columns(self.wishes)])
        check_columns(columns, self.shop.name)
        return columns

    def _wrote(self, place: str, size: int) -> None:
        self.files.append(place)
        limit = self.shop.max_bytes
        if limit is not None and size > limit:
            self.notes.append(
                f"{place} has {size:,} bytes, and {self.shop.name} imports files of {limit:,} at most: cut it "
                "between products."
            )

    def _write_new(self, new: NewFile, answers: Answers) -> None:
        outputs = Outputs.of(self.out, new.suffix)
        name = outputs.file or f"products{new.suffix}"
        self._check_destination(outputs, (name,))
        with outputs.writing(name) as path:
            with open(path, "w", encoding="utf-8", newline="") as file:
                csv.writer(file, delimiter=new.delimiter).writerows(self._new_rows(new, answers.products()))
            size = path.stat().st_size
        self._wrote(outputs.describe(name), size)
        self.notes.append(new.note)
        if count := answers.num_repeated_ids():
            rows = f"{count:,} rows have" if count > 1 else "1 row has"
            self.notes.append(
                f"{rows} an id that an earlier one has, too: {self.shop.name} keeps one product of an id. Give "
                "them ids of their own in the catalog, or join columns in input.id."
            )

    def _new_rows(self, new: NewFile, products: Iterable[ExportedProduct]) -> Iterator[list[str]]:
        """Yield the header, and a row for each product."""
        families = {
            name: schema.id
            for name, schema in self.schemas.items()
            if new.family is not None and re.fullmatch(new.family, schema.id or "")
        }
        has_family = bool(families)
        names = [new.id_column or self.wishes.identifier, *(["family"] if has_family else [])]
        columns = self._columns((), names)
        filler = Filler(columns, self.schemas, self.left_out)
        shared: dict[str, str | None] = {column.name: column.unit.name if column.unit else None for column in columns}
        names += [name for pair in shared.items() for name in pair if name is not None]
        yield names
        for product in products:
            cells = filler.fill(product)
            row = [product.product_id, *([families.get(product.category) or ""] if has_family else [])]
            texts = {column.name: cells.text(column) for column in cells.values if column.detail is None}
            details = [column for column in cells.values if column.detail is not None]
            texts |= {
                name: write_details(Detail("", each.detail or "", cells.text(each)) for each in details)
                for name in {each.name for each in details}
            }
            texts |= {column.unit.name: unit for column, unit in cells.units.items() if column.unit is not None}
            yield row + [texts.get(name, "") for name in names[len(row) :]]


def _suffix(name: str) -> str:
    return f".{name.rpartition('.')[2]}".lower() if "." in name else "."


_PACKED = (".gz", ".zst", ".bz2", ".xz", ".lz4")
_DELIMITED = ("csv", "shopify")


def open_original(side: Run, file: PlannedFile, shop: Shop, wishes: ShopWishes) -> Original | None:
    """Open the file that the run read; return None if it is none of the shop's.

    Raises `UsageError` if it cannot be read or has changed.
    """
    moved_to = wishes.original
    name = moved_to or file.name
    if file.format not in (*_DELIMITED, "xml"):
        if moved_to is not None:
            raise UsageError(f"--original {name}: the run read {file.name} ({file.format}), which has other rows")
        return None
    config = _input_config(side)
    _check_content(file, moved_to, config.anonymous)
    if file.format == "xml":
        return None if shop.feed is None else shop.feed(name, config)
    original = DelimitedOriginal.open(name, config)
    is_one = shop.is_original(file.format, original.header, original.dialect.delimiter, wishes)
    return original if is_one else None


def _input_config(side: Run) -> InputConfig:
    settings = side.input_settings
    fields = settings.get("fields")
    # A plan keeps the fields as pairs: their order counts.
    given = {**settings, "fields": dict(fields) if isinstance(fields, list) else fields}
    try:
        return InputConfig.model_validate(given)
    except ValidationError as error:
        raise UsageError(f"{side.uri}: its input settings have {error.error_count()} errors: {error}") from error


def _check_content(file: PlannedFile, moved_to: str | None, anonymous: bool) -> None:
    name = moved_to or file.name
    filesystem, path = open_filesystem(name, anonymous=anonymous)
    try:
        if moved_to is None:
            found = measure(filesystem, path)
        else:
            found = int(filesystem.info(path)["size"]), _fingerprint_elsewhere(file, filesystem, path)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or error
        raise UsageError(
            f"cannot read {name}: {reason}; --original names the file that the run read, if it was moved"
        ) from error
    if found == (file.size, file.fingerprint):
        return
    if moved_to is not None:
        raise UsageError(f"--original {name} is not the file that the run read, {file.name}: its content is another")
    raise UsageError(
        f"{name} has changed since the run; --original names the file that the run read, or run again on this one"
    )


def _fingerprint_elsewhere(file: PlannedFile, filesystem: object, path: str) -> str:
    """Return the plan's fingerprint of a file that was moved; the plan's own one if it cannot be computed."""
    # A remote storage has its own fingerprints for files, which differ at another place.
    is_content = isinstance(open_filesystem(file.name)[0], LocalFileSystem)
    return hash_content(filesystem, path) if is_content else file.fingerprint


def file_names(originals: Iterable[str]) -> dict[str, str]:
    """Return the name of each filled file: the original's without a packer's ending, numbered if names repeat."""
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
