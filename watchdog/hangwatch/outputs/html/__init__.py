"""HTML and SVG for the live page and the report: pure functions from values to markup.

May import the model, pure analysis, the causes' pages, ``sanitize``, the stack tree, the Markdown report, markupsafe and
markdown-it. Every function returns ``Markup``, which escapes its arguments: text from a job (name, paths, lines of code) can
never become an element. Nothing here sets a ``style`` attribute or contains a script, so pages can forbid both.
"""
