"""Why: the knowledge base. ``rules``: one file a family; ``scoring`` alone weighs; ``alternatives``: what is confused with what.

To add a cause: write its page, ``docs/causes/ID.md``, and in the file of its family a row (``Signature``) and a rule that
returns a ``Match`` of it, or None. Add the rule to the list in ``registry.py``. A rule looks at structure - frames of
libraries, states, shapes of locals, relations between the sides - and never at names of one program. Pure. May import
``hangwatch.analysis`` and ``hangwatch.model`` only.
"""
