"""What /proc says of a process, read without touching it."""
