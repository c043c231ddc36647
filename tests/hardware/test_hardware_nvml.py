"""GPUs through NVML: a driver rebuilt from nvidia-ml-py's own module, and the real library on a machine without a driver."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest
from nvml_driver import Driver, FakeGpu

from hangwatch.hardware.sources.nvml import Gpus
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.devices import Gpu, NodeFacts
from hangwatch.sources.discovery.rank_processes import RankProcess


def process(rank: int, pid: int, local_rank: int | None = None, **variables: str) -> RankProcess:
    """A rank's process."""
    return RankProcess(RankIdentity(rank, pid, 1.0, "", local_rank), pid, variables)


def two_gpus() -> Driver:
    """Two GPUs with two NVLinks each, a process on each."""
    return Driver(
        [
            FakeGpu("GPU-aa11", "00000000:3B:00.0", pids=(100,), links={0: 1, 1: 1}),
            FakeGpu("GPU-bb22", "00000000:5E:00.0", pids=(101,), links={0: 1, 1: 1}),
        ]
    )


def gpus(source: Gpus, *ranks: RankProcess) -> tuple[Gpu, ...]:
    """The GPUs now."""
    found = source.read(ranks)
    assert isinstance(found, NodeFacts), found
    return found.gpus


def test_ranks_are_found_by_the_drivers_own_list() -> None:
    """The driver lists the processes on each GPU."""
    driver = two_gpus()
    driver.gpus[1].use, driver.gpus[1].power = 100, 70_000
    first, second = gpus(Gpus(lambda: driver), process(4, 100), process(5, 101))
    assert (first.ranks, second.ranks) == ((4,), (5,))
    assert (second.bus_id, second.utilization, second.power_w, second.power_limit_w) == ("0000:5e:00", 1.0, 70.0, 700.0)


def test_what_holds_the_clocks_down() -> None:
    """Both bits for heat are one reason."""
    driver = two_gpus()
    driver.gpus[1].clock = 1230
    driver.gpus[1].reasons = (
        pynvml.nvmlClocksEventReasonSwPowerCap
        | pynvml.nvmlClocksEventReasonSwThermalSlowdown
        | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    )
    first, second = gpus(Gpus(lambda: driver))
    assert (first.clock_mhz, first.slowed_by) == (1980, ())
    assert (second.clock_mhz, second.slowed_by) == (1230, ("its power limit", "heat"))


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"),
    [
        (None, 1, 1),
        ("1,0", 0, 1),
        ("1", 0, 1),
        ("GPU-bb22", 0, 1),
        ("GPU-aa,GPU-bb", 1, 1),
        ("", 0, None),
        ("0,1", None, None),
    ],
)
def test_ranks_are_placed_by_convention_where_the_driver_lists_nobody(
    visible: str | None, local_rank: int | None, index: int | None
) -> None:
    """In another pid namespace the list is of no use; the environment says which GPU the local rank takes."""
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = gpus(Gpus(two_gpus), process(7, 5, local_rank, **variables))
    assert [g.index for g in found if g.ranks == (7,)] == ([index] if index is not None else [])


def test_what_changed_since_the_first_reading_is_reported() -> None:
    """Links that went down, errors that grew, Xids that the driver reported."""
    driver = two_gpus()
    source = Gpus(lambda: driver)
    source.begin()
    driver.gpus[0].links[1] = 0
    driver.gpus[0].replays = 12
    driver.events += [(1, 94), (1, 45)]
    first, second = gpus(source)
    assert (first.links_down, first.link_errors, first.xids) == ((1,), {"replay": 12}, ())
    assert (second.links_down, second.link_errors, second.xids) == ((), {}, (94, 45))


def test_a_lost_gpu_is_named_by_its_place() -> None:
    """A GPU that fell off the bus answers nothing; the others do."""
    driver = two_gpus()
    source = Gpus(lambda: driver)
    source.begin()
    driver.gpus[1].lost = True
    first, second = gpus(source, process(0, 100), process(1, 999))
    assert (first.lost, first.ranks) == (None, (0,))
    assert (second.index, second.lost, second.utilization) == (1, "GPU is lost", None)


def test_no_driver_is_a_gap_and_no_gpu_is_none() -> None:
    """Broken and absent are two things."""
    broken = Gpus(lambda: Driver([], loaded=False)).read([])
    assert isinstance(broken, Gap)
    assert "NVIDIA driver" in broken.hint
    none = Gpus(lambda: Driver([])).read([])
    assert isinstance(none, NodeFacts)
    assert [a.says for a in none.absent] == ["no NVIDIA GPU on this node"]


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where there are GPUs it is a gap with its repair; where there are none nothing is missing."""

    def absent() -> object:
        raise ModuleNotFoundError("No module named 'pynvml'")

    monkeypatch.setattr("hangwatch.hardware.sources.nvml._DEVICES", tmp_path)
    assert isinstance(Gpus(absent).read([]), NodeFacts)
    (tmp_path / "nvidia0").touch()
    found = Gpus(absent).read([])
    assert isinstance(found, Gap)
    assert "nvidia-ml-py" in found.hint


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has a GPU")
def test_the_real_library_without_a_driver_is_a_gap() -> None:
    """nvidia-ml-py itself, where its shared library is not there."""
    found = Gpus().read([])
    assert isinstance(found, Gap)
    assert found.reason == "NVML Shared Library Not Found"
