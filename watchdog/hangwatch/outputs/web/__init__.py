"""The HTTP server of the agent: the page, its live events, access control."""
