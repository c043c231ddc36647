"""The watch over one job: what is suspected, when it is captured, and which step follows which."""
