"""What the text of a program says: the blocks around a line, what counts its iterations, how far a loop is in its data.

Read with ``ast``: from whole files when a capture is taken (``blocks.SourceTree``), and from the lines and headers that it keeps
when it is diagnosed (``expressions``, ``headers``). Pure: text in, values out; who has the text decides when to read it.
"""
