"""The rules for silent failures: a training that runs and learns nothing. Pure."""
