"""All ranks are asked to save by SIGUSR1 at about the same time; a handler only notes it, and they agree before they do.

Saving takes part of a second and is no hang; then the job goes on and ends. Run by ``torchrun --nproc-per-node 4``.
"""

import os
import signal
import tempfile
import threading
from types import FrameType

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Request:
    """Whether somebody asked, noted by a handler."""

    def __init__(self, number: int) -> None:
        self.asked = False
        signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def agreed(self) -> bool:
        """Whether any rank was asked; a collective."""
        flag = torch.tensor([float(self.asked)])
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        self.asked = False
        return bool(flag.item())


def main() -> None:
    """Four hundred steps; the scheduler asks twice, and reaches some ranks later than others."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    request = Request(signal.SIGUSR1)
    model = DistributedDataParallel(nn.Linear(16, 16))
    saved = 0
    for step in range(400):
        if step in (100, 250):
            threading.Timer(0.3 * rank, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        model(torch.randn(8, 16)).square().mean().backward()
        model.zero_grad()
        if request.agreed():
            dcp.save({"model": model.state_dict()}, checkpoint_id=os.path.join(folder[0], str(step)))
            saved += 1
    print(f"rank {rank}: saved {saved} times", flush=True)
    # Those who were asked last must not be asked after their end.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
