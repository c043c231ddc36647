"""What is seen in a browser: pure functions from values to HTML and SVG, the same for the live page and the report.

May import the model, pure analysis, ``sanitize``, the stack tree and markupsafe. Every function returns ``Markup``, which
escapes whatever is put into it: text of a job (its name, paths, lines of code) can never become an element. Nothing here
sets a ``style`` attribute or carries a script, so a page can forbid both.
"""
