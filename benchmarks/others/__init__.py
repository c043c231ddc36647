"""Distributed tests of other projects, run under hangwatch: healthy jobs that nobody here wrote."""
