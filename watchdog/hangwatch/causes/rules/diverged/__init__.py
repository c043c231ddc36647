"""The ranks took different ways through the program: a condition, a loop, a skipped call, other groups or tensors."""
