"""Planning a scan: which files can hold a row that matches, and how they are read."""
