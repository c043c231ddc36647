"""The checks of `hangwatch doctor`: what works on this machine, and how to repair what does not."""
