"""Settings, the file they are read from, and where things are kept. May import the model."""
