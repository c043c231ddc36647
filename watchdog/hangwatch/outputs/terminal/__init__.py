"""Terminal output: the verdict, the table of ranks, lists and pages. May import the model and the other outputs' helpers."""
