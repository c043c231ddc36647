"""The command line: one file per command, each a thin shell around the agent and the outputs."""
