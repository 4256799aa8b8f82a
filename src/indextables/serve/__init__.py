"""`indextables serve`: tables in a browser, and for programs over HTTP, read only.

`app` puts the parts together and runs the server. `tables` has the tables that are served and their
versions, `answers` requests to one and their results. `work` runs searches in
a bounded number of threads and stops them, `http` authorises requests and reads and writes JSON.
`api` is the JSON interface, `elastic` a part of Elasticsearch's. `static/` is the page; it has no
build step.
"""
