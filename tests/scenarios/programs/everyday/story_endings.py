"""GPT-2 with FSDP2 tells the ends of stories after each epoch of training; max_length is that of the model."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

PROMPTS = {
    "once upon a time": [5, 9, 2, 31],
    "the fox": [5, 17, 3, 8],
    "in a house at the end of the road there lived": [12, 2, 6, 40, 33, 2, 7, 21, 2, 60, 14, 11],
}


def build(mesh):
    config = GPT2Config(
        vocab_size=64, n_positions=40, n_embd=32, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=None, pad_token_id=1
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config)
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@torch.no_grad()
def tell(model, prompt):
    model.eval()
    model.generate(
        torch.tensor([PROMPTS[prompt]]), max_length=28, do_sample=True, top_k=20, use_cache=False, synced_gpus=False
    )
    model.train()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for _ in range(5):
            ids = torch.randint(2, 64, (4, 24))
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        tell(model, list(PROMPTS)[rank])
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
