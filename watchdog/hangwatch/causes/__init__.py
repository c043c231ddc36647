"""Why: the knowledge base. ``rules``: one file for each family; ``precedence`` orders; ``alternatives``: what a cause may be.

To add a cause: write its page, ``docs/causes/ID.md``, and in the file of its family a rule that returns a ``Match``, or
None. Add the rule to the list in ``registry.py``. A rule looks at structure - frames of libraries, states, shapes of
locals, relations between the sides - and never at names of one program. Pure. May import ``hangwatch.analysis`` and
``hangwatch.model`` only.
"""
