"""Trains in two visits to the queue: the second one loads weights (DCP) and the position in the data."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard


class TextStream:
    """Batches of this rank's share; knows where it is."""

    def __init__(self, dp_rank: int, batches: int) -> None:
        self.dp_rank, self.batches, self.position = dp_rank, batches, 0

    def __iter__(self):
        while self.position < self.batches:
            generator = torch.Generator().manual_seed(self.dp_rank * 10_000 + self.position)
            self.position += 1
            yield torch.randint(32, (4, 10), generator=generator)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class TinyLM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embed(ids))[0])


def visit(folder: Path, stop_after: int | None) -> None:
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = TinyLM()
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    stream = TextStream(rank, batches=36)
    weights, position = folder / "weights", folder / "dataloader.pt"
    if weights.exists():
        state = get_model_state_dict(model)
        dcp.load(state, checkpoint_id=weights)
        set_model_state_dict(model, state)
        states = torch.load(position)
        if f"dp_rank_{rank}" in states:
            stream.load_state_dict(states[f"dp_rank_{rank}"])
    losses = torch.zeros(2)
    for ids in stream:
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses += torch.tensor([loss.item(), 1.0])
        if losses[1] == stop_after:
            dcp.save(get_model_state_dict(model), checkpoint_id=weights)
            if rank == 0:
                torch.save({f"dp_rank_{rank}": stream.state_dict()}, position)
            break
    dist.all_reduce(losses)
    if rank == 0:
        print(f"{int(losses[1])} batches, mean loss {losses[0] / losses[1]:.3f}", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp(prefix="queue-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    visit(Path(folder[0]), stop_after=12)
    visit(Path(folder[0]), stop_after=None)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
