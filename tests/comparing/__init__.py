"""Compares tools that read the dumps of torch's flight recorder, on the dumps kept in ``scenarios/dumps``: ``make compare``.

One file a tool says how it is run and how what it prints is read; ``judging`` holds that against the truth of the catalogue.
"""
