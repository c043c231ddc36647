"""What one stack shows by itself: what its thread waits for, calls, or asks a person. Pure."""
