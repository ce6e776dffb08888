"""Print the modules of the core that one `engine.extract` of one record executes on this CPU: a stranger's walk.

    python -m tests.walk

A line each: executed lines, lines of the file, path, what it holds. The sums are at the end. Loading the model is not
part of it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import coverage

import hpd_core
from hpd_core import Attribute, CategorySchema, Engine, Member, Record, Unit

ROOT = Path(hpd_core.__file__).parent
SCHEMA = CategorySchema(
    category="Shoes",
    attributes=(
        Attribute(name="Brand"),
        Attribute(name="Colour", type="enum", values=(Member(label="red"), Member(label="blue"))),
        Attribute(name="Weight", type="number", unit=Unit(want="g")),
    ),
)


def main() -> None:
    """Walk."""
    with Engine.from_pretrained("smollm2") as engine:
        walk = coverage.Coverage(data_file=None, source=[str(ROOT)])
        with walk.collect():
            engine.extract([Record("1", "Shoes", {"title": "Velor men's running shoe, red"})], {"Shoes": SCHEMA})
    data = walk.get_data()
    walked = {Path(file): len(lines) for file in data.measured_files() if (lines := data.lines(file))}
    sizes = {file: len(file.read_text().splitlines()) for file in walked}
    for file, executed in sorted(walked.items(), key=lambda each: -each[1]):
        says = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
        print(f"{executed:6,} {sizes[file]:6,}  {file.relative_to(ROOT.parent)}: {says}")
    print(f"{len(walked)} files of {sum(sizes.values()):,} lines, of which {sum(walked.values()):,} are executed")


if __name__ == "__main__":
    main()
