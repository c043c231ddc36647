"""One file per command, each a thin shell around the agent and the outputs: module NAME defines function NAME."""
