"""One rank at a time: what it waits for, whether it moves, how it ends. Pure."""
