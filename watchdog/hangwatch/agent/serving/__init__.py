"""The watch over serving engines: which there are, and what their metrics say, a request at a time beside the tick."""
