"""First version of `schemas.yaml`: attributes named in the texts, else examples to edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pipelines.config.yaml_dumping import comment_text
from pipelines.profiling.catalog_file import FILL_IN
from pipelines.profiling.key_values import FoundAttribute
from pipelines.profiling.yaml_text import is_key, listed, scalar, shown

MAX_CATEGORIES = 50
_MAX_LEFT_OUT = 10

_HEAD = """\
# Which attributes each category has. A start: strike out, add, describe. Check it with
#
#   hpd schema lint {place}
#
# An attribute is a name and, where it helps, more:
#   - {{name: Weight, type: number, unit: g}}
#   - {{name: Roast, type: enum, values: [light, medium, dark]}}      one of these, or null
#   - {{name: Organic, type: boolean}}
#   - {{name: Languages, multiple: true}}                             several values
#   - {{name: Model, description: as printed on the box}}             what to look for, in a few words
"""


def schemas_yaml(counts: Counter[str], found: Mapping[str, Sequence[FoundAttribute]], place: str) -> str:
    """Return the text of the file. `counts`: rows by category; `found`: attributes named in each category's texts."""
    named = Counter({category: count for category, count in counts.items() if is_key(category)})
    chosen = named.most_common(MAX_CATEGORIES)
    lines = [_HEAD.format(place=comment_text(place))]
    if left_out := named.most_common()[MAX_CATEGORIES:]:
        rows = sum(count for _, count in left_out)
        lines += [
            f"# The {len(chosen)} most frequent of {len(named):,} categories. The other {len(left_out):,} have "
            f"{rows:,} rows; without a schema",
            "# these become dead letters. The most frequent of them:",
            f"#   {listed((category for category, _ in left_out), _MAX_LEFT_OUT)}",
            "",
        ]
    lines.append("categories:")
    for category, count in chosen:
        lines += [f"  {scalar(category)}:    # {count:,} rows", *_attribute_lines(found.get(category, ()))]
    if not chosen:
        lines += [f"  {FILL_IN}:    # the name of a category, as it stands in the catalog", *_attribute_lines(())]
    return "\n".join(lines) + "\n"


def _attribute_lines(found: Sequence[FoundAttribute]) -> Iterator[str]:
    if not found:
        yield "    - name: Brand"
        yield "    # - name: Colour"
        yield "    # - {name: Size, description: as printed on the label}"
        return
    for attribute in found:
        kind = attribute.kind
        unit = f", unit: {scalar(kind.unit.want)}" if kind.unit else ""
        labels = [scalar(member.label) for member in kind.members or ()]
        values = f", values: [{', '.join(labels)}]" if labels else ""
        typed = f", type: {kind.type}{unit}{values}" if kind.type != "string" else ""
        examples = ", ".join(shown(value) for value in attribute.examples)
        seen = f"in {attribute.num_rows:,} rows looked at: {examples}"
        yield f"    - {{name: {scalar(attribute.name)}{typed}}}    # {seen}"
