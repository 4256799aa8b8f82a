"""The statements that Spark's grammar does not have, and the searches inside those it has.

`statements` parses an IndexTables statement, `execute` executes it without Spark, `search_calls`
prepares searches in any other SQL for Spark's parser.
"""
