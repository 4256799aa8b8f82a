"""Values of columns: hashes, bloom filters, words, distinct values, keys in a column's type."""
