"""The catalogue of scenarios: small real programs that hang, or look as if they did, each with its truth beside it.

``programs/FAMILY/NAME.py`` is a program, ``NAME.toml`` beside it says how it is started and what is true of it.
``make scenarios`` runs them all under ``hangwatch run``.
"""
