"""Speech recognition: batches, and a checkpoint within the epoch every so many seconds."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT_INTERVAL = 2.0  # seconds


class Checkpointer:
    """Folders of checkpoints."""

    def __init__(self, folder: Path, model: nn.Module) -> None:
        self.folder, self.model, self.number = folder, model, 0

    def save_checkpoint(self) -> None:
        """The first process names the folder and writes the weights; each writes its own state."""
        self.number += 1
        name = [str(self.folder / f"CKPT+{self.number:04}") if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(name, src=0)
        target = Path(name[0])
        target.mkdir(parents=True, exist_ok=True)
        if dist.get_rank() == 0:
            torch.save(self.model.state_dict(), target / "model.ckpt")
        torch.save(torch.get_rng_state(), target / f"rng-{dist.get_rank()}.ckpt")


class Brain:
    """The training of a network."""

    def __init__(self, vocabulary: int) -> None:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(40, 64), nn.LeakyReLU(), nn.Linear(64, vocabulary))
        self.modules = DistributedDataParallel(net)
        self.optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        self.checkpointer = Checkpointer(Path(tempfile.mkdtemp()), net)
        self.vocabulary = vocabulary

    def fit_batch(self) -> None:
        """Random frames."""
        logits = self.modules(torch.randn(6, 25, 40))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(self.vocabulary, (150,)))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fit(self, epochs: int, batches: int) -> None:
        """The loop, after a first batch as a check."""
        self.fit_batch()
        for _ in range(epochs):
            lines = read_manifest(dist.get_rank())
            last_checkpoint = time.time()
            for _ in range(min(batches, len(lines))):
                self.fit_batch()
                if time.time() - last_checkpoint >= CHECKPOINT_INTERVAL:
                    self.checkpointer.save_checkpoint()
                    last_checkpoint = time.time()


def read_manifest(rank: int) -> list[str]:
    """Read the manifest; the disks are not equally fast."""
    lines = [f"{i:06},utterance-{i}.wav" for i in range(20_000)]
    if rank == 0:
        lines.sort(key=lambda line: line.rsplit("-", 1)[1])
        time.sleep(0.9)
    if rank == 1:
        time.sleep(1.2)
    return lines


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    Brain(vocabulary=50).fit(epochs=2, batches=3000)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
