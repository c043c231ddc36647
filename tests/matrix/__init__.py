"""The wheel on versions of Python and PyTorch: ``make matrix`` installs it beside each pair and has it find real hangs.

A pair is a *cell*. Its hangs are demos of the wheel, started with the cell's own ``hangwatch demo``, which holds the verdict
against what the demo expects. The results are docs/versions.json, and the table of docs/status.md is made from them.
"""
