"""What the source of a program says: the blocks around a line, what counts iterations, how far a loop is in its data.

It is read with ``ast``: whole files when a capture is taken (``blocks.SourceTree``), lines and headers of a capture when it is
diagnosed (``lines``). Pure: text in, values out.
"""
