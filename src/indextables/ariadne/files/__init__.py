"""The external files of an index: paths, states, and reading them."""

from __future__ import annotations

from indextables.ariadne.files import driver_rows
from indextables.ariadne.files.driver_rows import KeyValues
from indextables.ariadne.files.paths import (
    canonical,
    expand,
    folder_and_name,
    for_spark,
    from_spark,
    stat,
)
from indextables.ariadne.files.read import (
    FILE,
    FORMATS,
    arrow_schema,
    check_values,
    computed_types,
    file_path,
    file_size,
    is_fault_of_files,
    keeping_rows,
    projected,
    read_files,
    reason_of,
    spark_schema,
)
from indextables.ariadne.files.rows import column_names, extended, newest_sql, nullable, rows_of
from indextables.ariadne.files.state import States, check_files, current_data, registered

__all__ = [
    "FILE",
    "FORMATS",
    "KeyValues",
    "States",
    "arrow_schema",
    "canonical",
    "check_files",
    "check_values",
    "column_names",
    "computed_types",
    "current_data",
    "driver_rows",
    "expand",
    "extended",
    "file_path",
    "file_size",
    "folder_and_name",
    "for_spark",
    "from_spark",
    "is_fault_of_files",
    "keeping_rows",
    "newest_sql",
    "nullable",
    "projected",
    "read_files",
    "reason_of",
    "registered",
    "rows_of",
    "spark_schema",
    "stat",
]
