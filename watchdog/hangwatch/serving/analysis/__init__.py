"""Serving engines: demand against progress, and which of an engine's processes holds it up. Pure."""
