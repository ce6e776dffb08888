"""Resolution of a schema's references: `$ref` is followed, `allOf` is merged, null is separated from the rest.

What has no keys that are known in advance raises `Unsplit`: it is decoded as a whole (json_schema/schema_reader.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from hpd_core.errors import SchemaError
from hpd_core.json_schema.answers import draft_of, recursion_errors, rewritten
from hpd_core.text.grammars import grammar_problem
from hpd_core.text.value_kinds import Pattern

Plain = dict[str, Any]
_MOST_READ = 10_000
_DECIMAL = "^(?!^[-+.]*$)[+-]?0*"  # how pydantic's pattern of a Decimal begins
_UNSPLIT = frozenset(
    {
        *("patternProperties", "propertyNames", "if", "not", "dependentSchemas", "dependentRequired", "dependencies"),
        *("prefixItems", "contains", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
    }
)
"""Keywords that say what no list of fields can."""
_MERGED = ("title", "description", "$defs", "definitions", "$schema", "$id", "$comment", "default", "examples")


class Unsplit(SchemaError):  # noqa: N818 - it is caught, and becomes a value that is decoded as a whole
    """Schema whose value cannot be split into fields with known keys."""


class References:
    """References of one schema. It tracks those that are being followed, so that none leads to itself."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        """Take the whole schema as `root`."""
        self._root = root
        self._find = finder(root)
        # A registry that fetches nothing: a stranger's schema may name any address.
        self._validator = draft_of(root)(root, registry=Registry())
        self._followed: list[str] = []
        self._num_read = 0

    @contextmanager
    def resolved(self, schema: Any, where: str) -> Iterator[tuple[Plain, bool]]:
        """Yield the schema without `$ref`, `allOf`, `anyOf` and null, and whether null is allowed.

        If it is an object of one of several shapes, `anyOf` has those, as written in the schema.

        Within the context its references count as being followed.

        Raises:
            SchemaError: it cannot be resolved.
        """
        depth = len(self._followed)
        try:
            plain, takes_null = self._plain(schema, where, tuple(self._followed))
            # Null in one place may be none in another: {"type": ["string", "null"], "enum": ["a", "b"]}.
            yield plain, takes_null and self.takes_null(schema)
        finally:
            del self._followed[depth:]

    def _plain(self, schema: Any, where: str, above: tuple[str, ...]) -> tuple[Plain, bool]:
        """Resolve the schema; `above`: the references that have led here."""
        self._num_read += 1
        if self._num_read > _MOST_READ:
            raise SchemaError(where, "references lead to each other too often: write the schema out")
        if not isinstance(schema, Mapping):
            raise Unsplit(where, "a field that may be anything cannot be asked for: say its 'type'")
        if "$id" in schema and schema is not self._root:
            raise SchemaError(where, "an '$id' in the middle changes what references mean: leave it out")
        if beside := sorted(_UNSPLIT & schema.keys()):
            raise Unsplit(where, f"{beside[0]!r} cannot be split into fields")
        if schema.get("nullable") is True and not _says_null(schema):
            raise SchemaError(where, "'nullable' is OpenAPI's, not JSON Schema's: write \"type\": [..., \"null\"]")
        plain = dict(schema)
        parts = [*plain.pop("allOf", ())]
        if "$ref" in plain:
            reference = plain.pop("$ref")
            if reference in above:
                raise Unsplit(where, f"{reference!r} leads to itself: write out as many levels as you need")
            above = (*above, reference)
            self._followed.append(reference)
            parts.append(self._target(reference, where))
        plain, takes_null = self._without_null(plain, where, above)
        for part in parts:
            found, also_null = self._plain(part, where, above)
            plain = _joined(plain, found, where)
            takes_null |= also_null
        return plain, takes_null

    def _target(self, reference: str, where: str) -> Mapping[str, Any]:
        if not reference.startswith("#"):
            raise SchemaError(where, f"{reference!r} is outside of the schema: put it into '$defs'")
        try:
            found = self._find(reference)
        except LookupError as error:
            raise SchemaError(where, f"{reference!r} leads nowhere: add it to '$defs'") from error
        if not isinstance(found, Mapping | bool):
            raise SchemaError(where, f"{reference!r} is no schema of a field")
        return found if isinstance(found, Mapping) else {} if found else {"not": {}}

    def takes_null(self, schema: Any) -> bool:
        """Return whether null fits a schema."""
        with recursion_errors():
            try:
                return bool(self._validator.evolve(schema=schema).is_valid(None))
            except Unresolvable:
                return False

    def alone(self, schema: Any, where: str, *, loosely: bool = False) -> Any:
        """Return a copy of a schema that refers only to its own `$defs`, without patterns that cannot be decoded.

        Args:
            loosely: whether the names of fields are left to the check of the answer, too.

        Raises:
            SchemaError: a reference leads nowhere or out of the schema.
        """
        names: dict[str, str] = {}

        def change(node: dict[str, Any]) -> dict[str, Any]:
            node.pop("$id", None)
            if isinstance(reference := node.get("$ref"), str):
                if reference not in names:
                    self._target(reference, where)
                    names[reference] = f"#/$defs/{len(names)}"
                # A grammar takes no circle with anything beside its reference.
                node = {key: value for key, value in node.items() if key not in _MERGED} | {"$ref": names[reference]}
            if isinstance(pattern := node.get("pattern"), str) and grammar_problem(Pattern(pattern)):
                del node["pattern"]
            if loosely and node.pop("patternProperties", None) is not None:
                node["additionalProperties"] = True
            return node

        whole = rewritten(schema, change)
        definitions: dict[str, Any] = {}
        while len(definitions) < len(names):
            reference = list(names)[len(definitions)]
            definitions[str(len(definitions))] = rewritten(self._target(reference, where), change)
        _refuse_endless(whole, definitions, where)
        if not isinstance(whole, dict):
            return whole
        rest = {key: value for key, value in whole.items() if key not in ("$defs", "definitions", "$schema")}
        rest |= {"$schema": self._root["$schema"]} if "$schema" in self._root else {}
        return rest | ({"$defs": definitions} if definitions else {})

    def _without_null(self, plain: Plain, where: str, above: tuple[str, ...]) -> tuple[Plain, bool]:
        takes_null = False
        shapes: list[Any] = []
        for keyword in ("anyOf", "oneOf"):
            if keyword in plain:
                depth, schemas = len(self._followed), plain.pop(keyword)
                alternatives = [self._plain(each, where, above) for each in schemas]
                takes_null |= any(also_null or _is_null(each) for each, also_null in alternatives)
                objects = [
                    each for each, (found, _) in zip(schemas, alternatives, strict=True) if "properties" in found
                ]
                if len(objects) > 1 and len(objects) == sum(not _is_null(each) for each, _ in alternatives):
                    del self._followed[depth:]  # each is followed by itself
                    shapes += objects
                else:
                    plain = _joined(plain, _one(alternatives, keyword, where), where)
        if shapes:
            plain["anyOf"] = shapes
        kinds = plain.get("type")
        if isinstance(kinds, Sequence) and not isinstance(kinds, str):
            takes_null |= "null" in kinds
            others = [kind for kind in kinds if kind != "null"]
            if len(others) > 1:
                raise Unsplit(where, f"it may be {' or '.join(kinds)}: choose one of these types, and null")
            plain["type"] = others[0] if others else "null"
        if isinstance(plain.get("enum"), list) and None in plain["enum"]:
            takes_null = True
            plain["enum"] = [value for value in plain["enum"] if value is not None]
            if not plain["enum"]:
                plain = {"type": "null"}
        return plain, takes_null


def _refuse_endless(whole: Any, definitions: Mapping[str, Any], where: str) -> None:
    """Raise SchemaError if a single value would be held against too many schemas: each refers to others twice."""
    weights: dict[int, float] = {}

    def weight(node: Any) -> float:
        """Return the number of schemas that hold of a value that this one holds of."""
        if not isinstance(node, dict):
            return 1
        if (found := weights.get(id(node))) is None:
            weights[id(node)] = math.inf  # for itself, without any value in between
            inner = [node[key] for key in ("not", "if", "then", "else") if key in node]
            inner += [each for key in ("allOf", "anyOf", "oneOf") for each in node.get(key, ())]
            inner += [*node.get("dependentSchemas", {}).values()]
            if isinstance(reference := node.get("$ref"), str):
                inner.append(definitions.get(reference.rpartition("/")[2]))  # None: it stands in a value
            found = weights[id(node)] = 1 + sum(map(weight, inner))
            if found > _MOST_READ:
                raise SchemaError(where, "its parts refer to each other too often: write the schema out")
        return found

    nodes = [whole, *definitions.values()]
    for node in nodes:
        weight(node)
        inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        nodes += [each for each in inside if isinstance(each, dict | list)]


def finder(root: Any) -> Callable[[str], Any]:
    """Return a function that returns what a reference within the schema leads to, and fetches nothing.

    It raises LookupError for a reference that leads nowhere or out of the schema.
    """
    resolver = Registry().with_resource("", DRAFT202012.create_resource(root)).resolver()

    def find(reference: str) -> Any:
        try:
            return resolver.lookup(reference).contents
        except (Unresolvable, ValueError, TypeError, AttributeError) as error:
            raise LookupError(reference) from error

    return find


def _says_null(schema: Mapping[str, Any]) -> bool:
    """Return whether null is allowed there, in JSON Schema's notation."""
    found = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    kinds = [each.get("type") for each in found if isinstance(each, Mapping)]
    return any("null" in (kind if isinstance(kind, list) else [kind]) for kind in kinds)


def _is_null(plain: Plain) -> bool:
    return plain.get("type") == "null" or ("const" in plain and plain["const"] is None)


def _one(alternatives: Sequence[tuple[Plain, bool]], keyword: str, where: str) -> Plain:
    """Return the one alternative beside null; several values become one enum."""
    plains = [plain for plain, _ in alternatives if not _is_null(plain)]
    if not plains:
        return {"type": "null"}
    if len(plains) == 1:
        return plains[0]
    if (number := _decimal(plains)) is not None:
        return number
    values: list[Any] = []
    for plain in plains:
        if "const" in plain:
            values.append(plain["const"])
        elif "enum" in plain:
            values += plain["enum"]
        else:
            raise Unsplit(
                where,
                f"{keyword!r} of several types cannot be decoded: choose one of them, or make an object of each, with "
                "a constant in a field that says which one it is",
            )
    return {"enum": values}


def _decimal(plains: Sequence[Plain]) -> Plain | None:
    """Return the number of a pair of number and text, which is how pydantic describes a `Decimal`; else None."""
    of_type = {plain.get("type"): plain for plain in plains}
    is_it = of_type.keys() == {"number", "string"} and str(of_type["string"].get("pattern")).startswith(_DECIMAL)
    return of_type["number"] if is_it and len(plains) == 2 else None


def _joined(plain: Plain, other: Plain, where: str) -> Plain:
    """Merge both, if it is clear how. Raise SchemaError if they contradict each other."""
    joined = dict(plain)
    for keyword, value in other.items():
        if keyword not in joined or joined[keyword] == value or keyword in _MERGED or keyword.startswith("x-hpd-"):
            joined.setdefault(keyword, value)
        elif keyword == "properties":
            common = {name for name in joined[keyword] if name in value and joined[keyword][name] != value[name]}
            if common:
                raise Unsplit(where, f"it says different things of {', '.join(sorted(common))}: join them")
            joined[keyword] = {**joined[keyword], **value}
        elif keyword == "required":
            joined[keyword] = [*joined[keyword], *(name for name in value if name not in joined[keyword])]
        elif keyword != "additionalProperties":
            raise Unsplit(where, f"it says two things of {keyword!r}: write it once")
    return joined
