"""From a capture to a verdict and its document: one pure function for the agent, for files and for tests."""
