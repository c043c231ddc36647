"""Fail-slow: the rank that makes all others wait, in a job that goes on."""
