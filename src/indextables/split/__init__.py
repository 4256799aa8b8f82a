"""Splits: Parquet files with a Tantivy index inside.

`mapping` says how columns are indexed, `write` makes a split, `format` has its layout, `search`
finds the numbers of matching rows, with an index or without one. `open_split` searches one
split, `scoring` ranks the rows of many, `merge` makes one split of several.
"""
