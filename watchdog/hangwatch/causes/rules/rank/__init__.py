"""One rank is missing, stuck or busy, and the others wait for it."""
