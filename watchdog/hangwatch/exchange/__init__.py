"""What agents of several nodes share: one small protocol, and where it is kept (in this process, in torch's store, in Redis)."""
