"""Metrics of serving engines: requests, and for how long nothing has come out. Pure; may import prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from hangwatch.model.serving import EngineState
from hangwatch.outputs.metrics.families import gauge, label


def engine_families(engines: Iterable[tuple[str, EngineState]]) -> Iterator[Metric]:
    """The families of the engines, each with the label of its job."""
    which = ("job_id", "engine")
    info = gauge("engine_info", "A watched serving engine and its kind; always 1.", (*which, "kind"))
    up = gauge("engine_up", "1 while the engine answers for its metrics, 0 after 15 s without an answer.", which)
    running = gauge("engine_requests_running", "Requests that the engine is working on.", which)
    waiting = gauge("engine_requests_waiting", "Requests that wait for the engine.", which)
    demand = gauge("engine_demand_seconds", "For how long requests have run or waited without a break.", which)
    age = gauge(
        "engine_progress_age_seconds",
        "For how long requests were there and nothing came out; 0 without requests.",
        which,
    )
    patience = gauge("engine_stall_after_seconds", "Seconds without progress before a hang is reported now.", which)
    for name, engine in engines:
        labels = [name, label(engine.address)]
        info.add_metric([*labels, engine.kind], 1)
        up.add_metric(labels, 0 if engine.silent_s else 1)
        running.add_metric(labels, engine.running)
        waiting.add_metric(labels, engine.waiting)
        demand.add_metric(labels, engine.demand_s)
        age.add_metric(labels, engine.still_s)
        patience.add_metric(labels, engine.patience_s)
    yield from (info, up, running, waiting, demand, age, patience)
