"""An incident as Markdown. May import the model, ``wording`` and ``sanitize``; pure functions from values to text."""
