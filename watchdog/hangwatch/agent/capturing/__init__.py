"""A capture of the ranks of this node: samples, flight records, hardware, redacted before anything is kept."""
