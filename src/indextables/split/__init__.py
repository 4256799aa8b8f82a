"""Splits: Parquet files with a Tantivy index inside.

`mapping` says how columns are indexed, `writer` makes a split, `container` knows its layout,
`search` opens one and finds rows, `flat` finds the same rows without an index. Import from the
modules: each loads only what it needs.
"""
