"""Every node reads its own settings file, and one file still has the evaluation group switched on.

Its rank makes one group more than the others, which are in the first step of training by then.
"""

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def read_settings(rank: int) -> dict[str, bool]:
    """The settings of this node."""
    folder = Path(tempfile.mkdtemp(prefix=f"node-{rank}-"))
    path = folder / "settings.json"
    # Somebody edited the others and forgot this one.
    path.write_text(json.dumps({"checkpoint_group": True, "evaluation_group": rank == 3}))
    return dict(json.loads(path.read_text()))


def make_groups(settings: dict[str, bool]) -> dict[str, dist.ProcessGroup]:
    """One group for each purpose that is switched on."""
    return {purpose: dist.new_group(backend="gloo") for purpose, wanted in settings.items() if wanted}


def main() -> None:
    """Train a little, saving now and then."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    groups = make_groups(read_settings(rank))
    model = nn.Linear(6, 2)
    for step in range(50):
        model.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if step % 10 == 9:
            dist.barrier(group=groups["checkpoint_group"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
