"""Devices, links and the kernel: what is read of a node's hardware (``sources/``), and which hangs it explains."""
