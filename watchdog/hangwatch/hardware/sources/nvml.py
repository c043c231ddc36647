"""GPUs as the driver sees them, through NVML: how busy, at what power, which errors, and which rank uses which.

May import hangwatch.model, its own parts, the standard library and nvidia-ml-py (extra ``gpu``; its module is
``pynvml``), whose names are those of ``nvml.h`` (13.615). NVML may hang with the driver: it is always called from its
own thread.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hangwatch.hardware.sources.kernel_log import normal_bus_id
from hangwatch.model.capture import Gap
from hangwatch.model.devices import Absence, Gpu, NodeFacts
from hangwatch.sources.discovery.rank_processes import RankProcess

NAME = "nvml"
_INSTALL = "pip install 'nvidia-ml-py>=12.535' in the agent's environment"
_DEVICES = Path("/dev")
#: ``NVML_NVLINK_ERROR_DL_*``: what a link repeats, recovers from, and drops.
_LINK_COUNTERS = ("REPLAY", "RECOVERY", "CRC_FLIT", "CRC_DATA")
_EVENTS_LIMIT = 256
#: The bits ``nvmlClocksEventReason*`` for which a GPU runs below its highest clocks.
_SLOWED_BY = {
    0x01: "idle", 0x02: "a clock setting", 0x04: "its power limit", 0x08: "the hardware's protection",
    0x10: "its sync boost group", 0x20: "heat", 0x40: "heat", 0x80: "the power supply",
}  # fmt: skip


class GpuReading(Gpu, frozen=True, omit_defaults=True):
    """One GPU at one moment.

    ``links``: by NVLink, True if it is up. ``errors``: by counter, the sum over all links. ``pids``: who uses it.
    """

    links: dict[int, bool] = msgspec.field(default_factory=dict)
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    pids: tuple[int, ...] = ()


class Gpus:
    """Keeps NVML open after the first suspicion, to receive the driver's later events."""

    name = NAME

    def __init__(self, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> None:
        self._load = load
        self._nvml: Any = None
        self._events: Any = None
        self._first: dict[str, GpuReading] = {}

    def begin(self) -> None:
        """Open NVML, register for events, and take the reading that later ones are compared with."""
        if self._open() is None:
            self._first = {r.uuid or str(r.index): r for r in read_gpus(self._nvml)}

    def read(self, ranks: Sequence[RankProcess]) -> NodeFacts | Gap:
        """Return the GPUs as they are now, each with those of ``ranks`` that use it."""
        refused = self._open()
        if refused is not None:
            return refused
        readings = tuple(read_gpus(self._nvml))
        if not readings:
            return NodeFacts("", 0, absent=(Absence(NAME, "no NVIDIA GPU on this node"),), looked=(NAME,))
        xids: dict[int, list[int]] = {}
        for index, code in self._drain():
            xids.setdefault(index, []).append(code)
        users = assign_ranks(readings, ranks)
        gpus = tuple(
            describe(self._first.get(r.uuid or str(r.index), r), r, tuple(xids.get(r.index, ())), users[r.index])
            for r in readings
        )
        return NodeFacts("", 0, gpus=gpus, looked=(NAME,))

    def _open(self) -> NodeFacts | Gap | None:
        """Load and initialise NVML once; return why that failed, None if it did not."""
        if self._nvml is not None:
            return None
        try:
            nvml = self._load()
        except ImportError:
            if not any(_DEVICES.glob("nvidia[0-9]*")):
                return NodeFacts("", 0, absent=(Absence(NAME, "no NVIDIA GPU on this node"),), looked=(NAME,))
            return Gap(NAME, "nvidia-ml-py is not installed, so GPUs are not checked", hint=_INSTALL)
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            if error.value in {nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED}:
                hint = "run the agent where the NVIDIA driver is; in a container, use --gpus all or the nvidia runtime"
                return Gap(NAME, str(error), hint=hint)
            return Gap(NAME, str(error))
        self._nvml = nvml
        with contextlib.suppress(nvml.NVMLError):
            self._events = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                with contextlib.suppress(nvml.NVMLError):
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        return None

    def _drain(self) -> Iterator[tuple[int, int]]:
        """Yield the Xid events since the last call: the GPU's index and the code."""
        nvml = self._nvml
        for _ in range(_EVENTS_LIMIT if self._events is not None else 0):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                yield nvml.nvmlDeviceGetIndex(event.device), int(event.eventData)
            except nvml.NVMLError:  # a time-out: there are no more
                return


def read_gpus(nvml: Any) -> Iterator[GpuReading]:
    """Yield all GPUs; a failed one with the driver's error."""
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError:
        return
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            yield GpuReading(index, lost=str(error))
            continue
        yield _read_gpu(nvml, index, handle)


def _read_gpu(nvml: Any, index: int, handle: Any) -> GpuReading:
    lost: list[str] = []

    def ask(name: str, *arguments: Any) -> Any:
        """Return one value; None if this GPU or driver does not have it."""
        try:
            return getattr(nvml, name)(handle, *arguments)
        except nvml.NVMLError as error:
            if error.value in {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED}:
                lost.append(str(error))
        except AttributeError:  # an older nvidia-ml-py
            pass
        return None

    pci, use = ask("nvmlDeviceGetPciInfo"), ask("nvmlDeviceGetUtilizationRates")
    power, limit = ask("nvmlDeviceGetPowerUsage"), ask("nvmlDeviceGetEnforcedPowerLimit")
    slowed = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if slowed is None:  # its name before R535
        slowed = ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    links = {
        link: bool(up)
        for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18))
        if (up := ask("nvmlDeviceGetNvLinkState", link)) is not None
    }
    errors: dict[str, int] = {}
    for counter in _LINK_COUNTERS:
        number = getattr(nvml, f"NVML_NVLINK_ERROR_DL_{counter}", None)
        values = [ask("nvmlDeviceGetNvLinkErrorCounter", link, number) for link in links] if number is not None else []
        known = [value for value in values if value is not None]
        if known:
            errors[counter.lower()] = sum(known)
    return GpuReading(
        index=index,
        uuid=_text(ask("nvmlDeviceGetUUID")),
        bus_id=normal_bus_id(_text(getattr(pci, "busId", ""))),
        name=_text(ask("nvmlDeviceGetName")),
        utilization=use.gpu / 100 if use is not None else None,
        power_w=power / 1000 if power is not None else None,
        power_limit_w=limit / 1000 if limit is not None else None,
        clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        slowed_by=tuple(dict.fromkeys(by for bit, by in _SLOWED_BY.items() if slowed & bit)),
        links=links,
        errors=errors,
        pids=tuple(sorted({int(p.pid) for p in ask("nvmlDeviceGetComputeRunningProcesses") or ()})),
        lost=lost[0] if lost else None,
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def describe(first: GpuReading, now: GpuReading, xids: tuple[int, ...], ranks: tuple[int, ...]) -> Gpu:
    """Return the GPU now, with what has changed since ``first``."""
    changed = {
        "links_down": tuple(link for link, up in sorted(now.links.items()) if not up and first.links.get(link, False)),
        "link_errors": {n: v - first.errors[n] for n, v in now.errors.items() if v > first.errors.get(n, v)},
        "xids": xids,
        "ranks": ranks,
    }
    return Gpu(**{field: getattr(now, field) for field in Gpu.__struct_fields__} | changed)


def assign_ranks(readings: Sequence[GpuReading], ranks: Sequence[RankProcess]) -> dict[int, tuple[int, ...]]:
    """Return the ranks on each GPU by its index.

    By the processes that the driver lists; if none of the ranks' is among them (another PID namespace), by the ranks'
    environment.
    """
    by_pid = {pid: r.rank for r in ranks for pid in (r.pid, r.namespace_pid)}
    listed = {g.index: tuple(sorted({by_pid[p] for p in g.pids if p in by_pid})) for g in readings}
    if any(listed.values()):
        return listed
    assumed: dict[int, list[int]] = {g.index: [] for g in readings}
    for rank in ranks:
        index = assumed_gpu(rank, readings)
        if index in assumed:
            assumed[index].append(rank.rank)
    return {index: tuple(sorted(found)) for index, found in assumed.items()}


def assumed_gpu(rank: RankProcess, readings: Sequence[GpuReading]) -> int | None:
    """Return the GPU that a rank uses by convention: the one at its local rank among the visible GPUs.

    None if the environment does not tell.
    """
    given, local = rank.variables.get("LOCAL_RANK", ""), rank.identity.local_rank
    if local is None and given.isdigit():
        local = int(given)
    visible = rank.variables.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return local
    names = [name.strip() for name in visible.split(",") if name.strip()]
    chosen = names[0] if len(names) == 1 else names[local] if local is not None and local < len(names) else ""
    if chosen.isdigit():
        return int(chosen)
    return next((g.index for g in readings if chosen and g.uuid.startswith(chosen)), None)
