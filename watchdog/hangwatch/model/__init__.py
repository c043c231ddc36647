"""What is known: frozen values and the names of the field. No I/O; imports nothing of ours."""
