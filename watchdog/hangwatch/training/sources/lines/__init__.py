"""Formats of logged lines: one file a library."""
