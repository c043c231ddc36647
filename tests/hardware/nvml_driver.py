"""A driver for tests: the part of nvidia-ml-py's module (13.615) that is used, over GPUs that a test describes.

Names, units and errors are ``pynvml.py``'s own; what a GPU does not have raises as the driver does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """As in pynvml: the number is ``value``."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return {3: "Not Supported", 9: "Driver Not Loaded", 10: "Timeout", 15: "GPU is lost"}.get(
            self.value, "Unknown Error"
        )


@dataclass
class FakeGpu:
    """One GPU. Power in milliwatts, as NVML has it."""

    uuid: str
    bus_id: str
    use: int = 0
    power: int = 90_000
    clock: int = 1980
    reasons: int = 0
    pids: tuple[int, ...] = ()
    links: dict[int, int] = field(default_factory=dict)
    replays: int = 0
    lost: bool = False


@dataclass
class Driver:
    """The module: a test changes its GPUs and puts events into it."""

    gpus: list[FakeGpu]
    loaded: bool = True
    events: list[tuple[int, int]] = field(default_factory=list)

    NVMLError = NVMLError
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    NVML_CLOCK_SM = 1
    NVML_NVLINK_MAX_LINKS = 18
    NVML_NVLINK_ERROR_DL_REPLAY = 0
    NVML_NVLINK_ERROR_DL_RECOVERY = 1
    NVML_NVLINK_ERROR_DL_CRC_FLIT = 2
    NVML_NVLINK_ERROR_DL_CRC_DATA = 3
    nvmlEventTypeXidCriticalError = 8

    def nvmlInit(self) -> None:
        if not self.loaded:
            raise NVMLError(9)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self._there(self.gpus[index])

    def nvmlDeviceGetIndex(self, gpu: FakeGpu) -> int:
        return self.gpus.index(gpu)

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return self._there(gpu).uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return "NVIDIA H100 80GB HBM3" if self._there(gpu) else ""

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(busId=self._there(gpu).bus_id)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(gpu=self._there(gpu).use, memory=0)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        return self._there(gpu).power

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: FakeGpu) -> int:
        return 700_000 if self._there(gpu) else 0

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, kind: int) -> int:
        assert kind == self.NVML_CLOCK_SM
        return self._there(gpu).clock

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:
        return self._there(gpu).reasons

    def nvmlDeviceGetNvLinkState(self, gpu: FakeGpu, link: int) -> int:
        if link not in self._there(gpu).links:
            raise NVMLError(3)
        return gpu.links[link]

    def nvmlDeviceGetNvLinkErrorCounter(self, gpu: FakeGpu, link: int, counter: int) -> int:
        if counter != 0:
            raise NVMLError(3)
        return self._there(gpu).replays if link == 0 else 0

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self._there(gpu).pids]

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, _gpu: FakeGpu, kinds: int, _events: object) -> None:
        assert kinds == self.nvmlEventTypeXidCriticalError

    def nvmlEventSetWait_v2(self, _events: object, timeout_ms: int) -> Any:
        assert timeout_ms == 0
        if not self.events:
            raise NVMLError(10)
        index, code = self.events.pop(0)
        return SimpleNamespace(device=self.gpus[index], eventData=code)

    def _there(self, gpu: FakeGpu) -> FakeGpu:
        if gpu.lost:
            raise NVMLError(15)
        return gpu
