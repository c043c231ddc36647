"""The commands: one file a command, each a thin shell around the agent and the outputs."""
