"""FSDP2: goes on with a run from its full state, if there is one."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


def build() -> nn.Sequential:
    """The network, not sharded."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 40), nn.GELU(), nn.Linear(40, 40), nn.GELU(), nn.Linear(40, 20))


def load_full_state(model: nn.Module, path: Path) -> None:
    """Read the file on the first rank and hand each its shards."""
    state = torch.load(path) if dist.get_rank() == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, state, options=options)


def main() -> None:
    """Forty steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--allow-resume", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build()
    run = Path(tempfile.mkdtemp())
    if rank == 0:
        torch.save(model.state_dict(), run / "latest.pt")  # as the run before left it
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer)
    fully_shard(model)

    if rank == 0:
        print("Configuration:", flush=True)
        print(vars(args), flush=True)

        if args.allow_resume:
            print("resuming from", run / "latest.pt", flush=True)
            load_full_state(model, run / "latest.pt")
    dist.barrier()

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for _ in range(40):
        rows = torch.randn(4, 20)
        (model(rows) - rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
