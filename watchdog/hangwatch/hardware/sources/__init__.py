"""What the node says of its hardware: GPUs, links, the kernel log."""
