"""Arrow's types, independent of how their values are stored."""

from __future__ import annotations

import pyarrow as pa


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, independent of how they are stored."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return value_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and not is_uuid(kind):
        return value_type(kind.storage_type)
    return kind


def is_list(kind: pa.DataType) -> bool:
    """Return whether the type's values are lists, however they are stored."""
    tests = (
        *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
        *(pa.types.is_list_view, pa.types.is_large_list_view),
    )
    return any(test(kind) for test in tests)


def is_uuid(kind: pa.DataType) -> bool:
    """Return whether the type is Arrow's extension type for UUIDs."""
    return getattr(kind, "extension_name", "") == "arrow.uuid"
