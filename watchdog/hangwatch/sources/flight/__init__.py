"""The flight recorder of torch: requested, read, and normalised to operations."""
