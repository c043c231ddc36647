"""HTML and SVG for the live page and the report: pure functions from values to markup.

May import the model, pure analysis, ``sanitize``, the stack tree and markupsafe. Every function returns ``Markup``, which
escapes its arguments: text from a job (name, paths, lines of code) can never become an element. Nothing here sets a
``style`` attribute or contains a script, so pages can forbid both.
"""
