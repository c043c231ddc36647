"""What becomes of a verdict: the record of an incident, its bundle, who is told, what is done, what is kept."""
