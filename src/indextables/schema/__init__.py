"""The columns of a table: Spark's schema JSON and Arrow's schema, the same thing in two spellings.

The log keeps a schema as Spark writes it (`schemaString`); rows are Arrow. Every Spark type has
one Arrow type here, and Arrow input of another kind is brought to it when nothing is lost
(`normalize`) or refused with a sentence. `evolve` says what a table's schema becomes when rows of
another schema arrive, and `conform` brings those rows to it.
"""

from __future__ import annotations

from indextables.schema.conformity import (
    conform,
    evolve,
    nulls,
    refuse_invalid_text,
    refuse_other_dimensions,
    with_whole_variants,
)
from indextables.schema.types import (
    HIDDEN,
    MAX_DECIMAL_PRECISION,
    METADATA,
    ROW,
    ROW_ACTION,
    ROW_IDENTITY,
    SCORE,
    SIMPLE,
    SPLIT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    column_field,
    dimension_of,
    from_json,
    is_bytes,
    is_collated,
    is_text,
    map_of,
    normalize,
    refuse_hidden,
    to_json,
    type_name,
)

__all__ = [
    "HIDDEN",
    "MAX_DECIMAL_PRECISION",
    "METADATA",
    "ROW",
    "ROW_ACTION",
    "ROW_IDENTITY",
    "SCORE",
    "SIMPLE",
    "SPLIT",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "column_field",
    "conform",
    "dimension_of",
    "evolve",
    "from_json",
    "is_bytes",
    "is_collated",
    "is_text",
    "map_of",
    "normalize",
    "nulls",
    "refuse_hidden",
    "refuse_invalid_text",
    "refuse_other_dimensions",
    "to_json",
    "type_name",
    "with_whole_variants",
]
