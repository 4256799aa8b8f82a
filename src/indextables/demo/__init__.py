"""A tour of the product on real text that every machine has: the Python sources installed here.

Run it with `make demo`.
"""
