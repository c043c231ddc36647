"""For coding agents: stored incidents and running jobs, as read-only tools of the Model Context Protocol.

It is below the command line. ``server.py`` registers the tools; the other files answer them with the values of
``answers.py`` and know nothing of the protocol. Only ``server.py`` may import the MCP SDK (extra
``mcp``). Answers are small: ranks are written as sets (``0-6,8``), lists come in pages, and nothing that a bundle
hides is shown.
"""
