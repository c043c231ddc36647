"""The rules: one file a family of causes. A rule takes a case and returns a hypothesis or None. Pure."""
