"""Trainings that run and learn nothing: what they say of their steps (``sources/``), what that means, and why.

``telemetry.py`` follows a running job, ``postmortem.py`` reads what one has left. Hangs are found without any of
this.
"""
