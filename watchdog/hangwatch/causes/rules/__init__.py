"""The rules, one file a family: ``diverged`` (ranks took different ways), ``rank`` (one is missing, stuck or busy), ``job``."""
