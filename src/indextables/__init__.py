"""Full-text search tables: Parquet splits with a Tantivy index inside, under a transaction log."""

__version__ = "0.1.0"
