"""What becomes of a verdict: the record of an incident, its bundle, who is notified, what is done, what is kept."""
