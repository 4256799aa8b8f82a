"""Cross-references (XRefs): which splits can hold a match, asked of one small index.

`build` makes one from the term lists of its source splits, `route` asks all of a table's XRefs a
predicate and returns the splits that have to be read.
"""
