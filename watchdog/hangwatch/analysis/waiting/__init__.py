"""Who waits for whom, who is to blame, and whether that is proven. Pure."""
