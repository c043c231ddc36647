"""Shared state of the agents of several nodes: one small protocol with three backends (in-process, torch's TCPStore, Redis)."""
