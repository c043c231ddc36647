"""What is observed: one file a source. Sources read and normalise; they never interpret.

May import ``hangwatch.model``, psutil, msgspec and the standard library; never analysis, agent, torch or the probe.

To add a source, write one module here named by a noun, with

- a pure parser ``parse_x(data) -> value`` that raises one typed error at most, tested on a real capture;
- one thin function that reads: ``sample_x`` or ``fetch_x`` (``async`` where it waits). It returns a frozen value of
  ``hangwatch.model``, or a ``Gap`` (what, why, repair) where it could not see: no exception leaves a source, and nothing
  is missing silently;
- a bound on everything: a time limit on what may wait, a size cap on what is read, a count cap on what is kept;

and call it from the agent's capture (dear, when a hang is suspected) or its tick (every second: microseconds a rank).
Nothing here may pause, signal or write to a rank; the one byte that ``flight_pipe`` writes goes into a pipe that the
job's owner has made for it.
"""
