"""Captures in another form: packed for storage or transport, by another clock, without some of their text. Pure."""
