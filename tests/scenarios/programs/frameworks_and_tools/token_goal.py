"""DDP until a number of tokens has been seen, then a checkpoint by torch.distributed.checkpoint."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.nn.parallel import DistributedDataParallel


class Documents:
    """Documents of differing length; some collections have longer ones."""

    def __init__(self, rank: int) -> None:
        self.lengths = [10, 14, 12, 16] if rank != 3 else [14, 14, 13, 17]

    def __iter__(self):
        number = 0
        while True:
            yield torch.randint(0, 40, (1, self.lengths[number % len(self.lengths)]))
            number += 1


def save(model: nn.Module, folder: Path) -> None:
    """All ranks together; what they share is written once."""
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder)


def main() -> None:
    """Two phases of 400 tokens."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    where = [tempfile.mkdtemp()]
    dist.broadcast_object_list(where, src=0)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(40, 12), nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 40))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    documents = iter(Documents(rank))
    for phase in range(2):
        seen = 0
        while seen < 400:
            tokens = next(documents)
            logits = model(tokens[:, :-1])
            nn.functional.cross_entropy(logits[0], tokens[0, 1:]).backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += tokens.numel()
        save(model, Path(where[0]) / f"phase-{phase}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
