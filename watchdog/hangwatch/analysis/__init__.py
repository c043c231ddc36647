"""What it means: pure functions from captures to who waits for whom. No I/O; imports only ``hangwatch.model``."""
