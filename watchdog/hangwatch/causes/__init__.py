"""Why: the knowledge base. One file a family of causes; a rule takes the case and returns a hypothesis or None. Pure.

To add a cause: write its page, ``docs/causes/ID.md``, and its rule in the file of its family (or a new one). The rule takes
what is the same each time, title and remedy, from the page by ``known("ID")``. Add it to the list in ``registry.py``. A rule
looks at structure - frames of libraries, states, shapes of locals, relations between the sides - and never at names of
somebody's program. May import ``hangwatch.analysis`` and ``hangwatch.model`` only.
"""
