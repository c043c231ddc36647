"""One file per command, each a thin shell around the agent and the outputs: module NAME defines the command NAME.

A module imports what its command needs when the command runs, so that help and completion import nothing of it.
"""
