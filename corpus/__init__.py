"""The corpus: thousands of small real programs that hang, what is true of each hang, and what was captured of it.

``families`` holds most of it, packed; what the tests replay lies in ``tests/scenarios/core`` as files. ``catalogue`` reads both.
"""
