"""One file a tool: how it is run, and how what it says is read."""
