"""The external files of an index: paths, states, and reading them."""
