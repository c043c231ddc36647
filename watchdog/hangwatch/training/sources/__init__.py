"""What a training says of itself: in the beats of its ranks, in its output, and in the files it writes anyway.

``lines.py`` has all known forms of lines; ``live_outputs.py`` finds what a job writes, and ``follow.py`` continues to
read where it stopped. May import hangwatch.model, msgspec and the standard library.
"""
