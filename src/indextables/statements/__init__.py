"""The statements that Spark's grammar does not have, and the searches inside those it has.

`statements` reads a statement of ours, `execute` carries it out without Spark, `search_calls`
prepares searches in any other SQL for Spark's parser.
"""
