"""The command line: ``main.py`` calls one of ``commands/``; beside it are the options and consoles that they share."""
