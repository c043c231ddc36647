"""hangwatch: finds, proves and explains hangs of distributed PyTorch jobs while they happen.

This file stays empty of imports: a rank may import ``hangwatch.probe``, and must get nothing else with it.
"""

__version__ = "0.1.0"
