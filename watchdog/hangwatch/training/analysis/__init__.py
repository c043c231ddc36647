"""Whether a training learns, by the steps it logs. Pure."""
