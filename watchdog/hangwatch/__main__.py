"""``python -m hangwatch``."""

from hangwatch.cli.main import main

main()
