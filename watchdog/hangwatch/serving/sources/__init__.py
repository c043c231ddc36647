"""Serving engines: their own metrics, and their processes. One file per thing read."""
