"""The transaction log: what a table is, version by version.

`transaction_log` is the entry point: snapshots out, commits in. `actions` are what a version says,
`snapshot` is the table at one version, `layout` names the files of a log, `checkpoint` keeps whole
tables so that older versions may go, `commit` and `transaction` decide who may write after whom.
"""
