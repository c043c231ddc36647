"""Stacks of ranks by py-spy, with the source around each line and the shapes of locals."""
