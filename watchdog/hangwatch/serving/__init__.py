"""Inference engines: their metrics (``sources/``), requests that wait while nothing is generated, and why.

``engine.py`` follows one engine, ``engines.py`` all of a node; ``kind.py`` judges what hangs.
"""
