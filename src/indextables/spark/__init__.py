"""IndexTables in PySpark.

With `session.enable` a session has two ways to the same planner. The public Python data source
(`data_source`) works in every Spark. On a classic session, `bridge` implements Spark's DataSource
V2 interfaces in the driver's Python: whole filter trees, aggregates, hidden columns, a catalog.
Packages below this one do not import pyspark.
"""
