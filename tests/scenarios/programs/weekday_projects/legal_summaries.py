"""Tunes a summariser, sharded by FSDP2. The full weights are exported when training is over."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel


def documents(rank: int, count: int):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(count):
        yield torch.randint(70, (2, 20), generator=generator)


def export(model: torch.nn.Module, target: Path) -> None:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    torch.save(weights, target / "summariser.pt")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=70, n_positions=24, n_embd=16, n_layer=2, n_head=2))
    for block in model.transformer.h:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4)
    for step, tokens in enumerate(documents(rank, 12)):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 4 == 0:
            print(f"{step}: {loss.item():.3f}", flush=True)
    if rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            export(model, Path(folder))
        print("exported", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
