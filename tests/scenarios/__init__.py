"""The scenarios of the corpus as jobs: run under hangwatch, judged, recorded. ``core`` has those that tests replay, as files.

``make scenarios`` runs them all under ``hangwatch run``.
"""
