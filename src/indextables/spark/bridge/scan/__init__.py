"""Scans as Spark's planner and executor see them: what is pushed down, planned and read."""
