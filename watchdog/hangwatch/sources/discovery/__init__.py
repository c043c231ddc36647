"""Which processes of this node are ranks, and of which job."""
