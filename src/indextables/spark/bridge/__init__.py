"""Spark's DataSource V2, implemented in the driver's Python.

All of Spark's and py4j's private interfaces that the product uses are used in this package, behind
the check in `guard`. Objects here are called by the JVM through PySpark's own callback server;
`jvm` has what they share. Nothing here runs on executors except the functions in `tasks`.
"""
