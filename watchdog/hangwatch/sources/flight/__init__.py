"""The flight recorder of torch: asked for, read, and normalised to operations."""
