"""What a stack says by itself, whoever it is of: what its thread waits for, takes, calls or goes through. Pure."""
