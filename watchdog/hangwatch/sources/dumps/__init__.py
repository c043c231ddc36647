"""What people have after a crash, read: dumps and stacks of any origin, name and packing.

``contents`` finds and opens the files (``archives`` what is packed), ``decode`` says what one of them holds, ``names`` whose
it is where the content does not tell, ``belonging`` which of them are of one job and one moment. May import hangwatch.model,
hangwatch.sources' own parts, msgspec and the standard library.
"""
