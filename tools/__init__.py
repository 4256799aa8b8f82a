"""Programs for the people who work on the code."""
