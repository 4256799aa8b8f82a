"""`indextables serve`: tables in a browser, and for programs over HTTP, read only.

`app` puts the parts together and runs the server. `tables` has the tables that are served and their
versions, `answers` what a search of one returns, `work` runs searches in a bounded number of
threads and stops them, `guard` decides who may ask, `api` translates requests to `answers`.
`static/` is the page; it has no build step.
"""
