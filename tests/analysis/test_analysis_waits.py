"""What a stack says of a wait for other ranks where the library that waits has a form of its own."""

from __future__ import annotations

import pytest

from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.model.stacks import Frame

PACKAGES = "/opt/venv/lib/python3.11/site-packages"
HANDLES = f"{PACKAGES}/deepspeed/runtime/zero/partition_parameters.py"
NVTX = Frame("instrument_w_nvtx.<locals>.wrapped_fn", f"{PACKAGES}/deepspeed/utils/nvtx.py", 33)
ENGINE = Frame("backward", f"{PACKAGES}/deepspeed/runtime/engine.py", 3428)


@pytest.mark.parametrize("name", ["AllGatherHandle.wait", "wait"])
def test_a_handle_of_deepspeed_waits_for_others(name: str) -> None:
    """ZeRO-3 gathers through handles: the wait is C++, below a wrapper that marks ranges for NVTX. Names are bare before 3.11."""
    wait = read_wait((NVTX, Frame(name, HANDLES, 724, "instrument_w_nvtx(self.handle.wait)()"), ENGINE))
    assert wait is not None
    assert (wait.kind, wait.op, wait.frame.line) == ("work", "wait", 724)


def test_what_deepspeed_calls_by_its_wrapper_is_not_a_wait() -> None:
    """The wrapper is around nearly all that DeepSpeed does."""
    assert read_wait((NVTX, ENGINE)) is None
    assert read_wait((NVTX, Frame("AllGatherHandle.__init__", HANDLES, 710), ENGINE)) is None


@pytest.mark.parametrize(
    "name", ["TrainContext._sync_checkpoint_dir_name_across_ranks", "broadcast_from_rank_zero", "barrier"]
)
def test_a_report_of_ray_train_waits_for_all_workers(name: str) -> None:
    """An actor counts them: the wait is Ray's ``get``. Who of them has not come is a matter of the other stacks."""
    get = Frame("get", f"{PACKAGES}/ray/_private/worker.py", 2981, "values, debugger = worker.get_objects(refs)")
    inside = Frame(name, f"{PACKAGES}/ray/train/v2/_internal/execution/context.py", 254, "return ray.get(")
    wait = read_wait((get, inside, Frame("train", "/srv/train/train.py", 16)))
    assert wait is not None
    assert (wait.kind, wait.frame, wait.default_group, wait.exact) == ("collective", inside, True, False)
    assert read_wait((get, Frame("train", "/srv/train/train.py", 16))) is None
