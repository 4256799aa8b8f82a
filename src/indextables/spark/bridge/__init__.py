"""Spark's DataSource V2, implemented in the driver's Python; all of PySpark's private API is here.

From the ground up: `sessions` (which session is of which kind, and whether it can have a bridge),
`patches` (the only replacements of PySpark's methods), `jvm` (objects that the JVM calls through
PySpark's own callback server), `scan`, `write`, `catalog`, `frames`, `search_functions`,
`session_bridge` (the bridge of one session) and `readwriter` (`spark.read` and `df.write`). Nothing
here runs on executors.
"""
