"""Who has the other end of what a thread is blocked on, read without touching either side."""
