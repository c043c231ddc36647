"""Files that people have after a crash: dumps and stacks of any origin, name and packing.

``contents`` finds and opens the files (``archives`` those that are packed). ``decode`` says what one of them holds.
``names`` tells a file's rank if its content does not. ``belonging`` tells which files are of one job and one moment.
May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library.
"""
