"""What a terminal shows: the verdict, the table of ranks. May import the model and rich."""
