"""Notes of an orchestra under FSDP2; all ranks write the checkpoint, and rank 0 a summary of the scores behind it."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

NOTES = 36


def bars(step: int, rank: int) -> torch.Tensor:
    """What an instrument plays."""
    generator = torch.Generator().manual_seed(step * 50 + rank)
    return torch.randn(12, NOTES, generator=generator)


def write_summary(path: Path, losses: list[float]) -> None:
    """For the conductor, who wants it typeset."""
    time.sleep(3)
    path.write_text("\n".join(f"{loss:.4f}" for loss in losses))


def main() -> None:
    """Three movements of twelve steps; each starts from the checkpoint of the one before."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    name = [tempfile.mkdtemp(prefix="orchestra-") if rank == 0 else ""]
    dist.broadcast_object_list(name, src=0)
    folder = Path(name[0])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(NOTES, 64), nn.Tanh(), nn.Linear(64, NOTES))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for movement in range(3):
        if movement:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments}
            dcp.load(state, checkpoint_id=folder / f"movement-{movement - 1}")
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        losses = []
        for step in range(12):
            notes = bars(12 * movement + step, rank)
            loss = (model(notes) - notes.roll(1, dims=1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder / f"movement-{movement}")
        if rank == 0:
            write_summary(folder / f"movement-{movement}.txt", losses)
            print(f"movement {movement}: {losses[-1]:.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
