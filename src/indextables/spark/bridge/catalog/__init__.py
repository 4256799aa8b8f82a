"""Tables and catalogs as Spark's analyzer sees them."""
