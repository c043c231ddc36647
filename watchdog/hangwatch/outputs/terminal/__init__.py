"""Terminal output: the verdict, the table of ranks. May import the model and rich."""
