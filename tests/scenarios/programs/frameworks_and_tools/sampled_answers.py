"""FSDP2 around a small GPT-2; before each update every rank samples answers to its own prompts, up to a common length."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from transformers import GPT2Config, GPT2LMHeadModel

LENGTH = 18


def build() -> GPT2LMHeadModel:
    """Two layers."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=32, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    model = GPT2LMHeadModel(config)
    for block in model.transformer.h:
        fully_shard(block)
    fully_shard(model)
    register_fsdp_forward_method(model, "generate")
    return model


def prompts(rank: int, turn: int) -> torch.Tensor:
    """Two prompts; those of rank 0 get longer when the second book begins."""
    length = 6 if rank != 0 or turn < 4 else 9
    return torch.randint(3, 32, (2, length))


def main() -> None:
    """Ten turns."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(rank + 1)
    for turn in range(10):
        question = prompts(rank, turn)
        model.eval()
        answers = model.generate(question, max_length=LENGTH, min_length=LENGTH, do_sample=True, synced_gpus=False)
        model.train()
        reward = (answers > 16).float().mean()
        baseline = reward / world
        dist.all_reduce(baseline)
        loss = model(input_ids=answers, labels=answers).loss * (reward - baseline)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(turn, baseline.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
