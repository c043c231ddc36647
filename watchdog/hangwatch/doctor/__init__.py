"""The checks of `hangwatch doctor`: what works on this machine, with a repair for what does not."""
