"""Captures in another form: packed to be kept or sent, on another clock, without some of their text. Pure."""
