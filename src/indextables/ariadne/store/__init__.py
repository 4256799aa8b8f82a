"""Where an index is stored: its place, its Delta tables, its staged and its large values."""
