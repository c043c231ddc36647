"""Settings, the file they are read from, and the directories of hangwatch. May import the model."""
