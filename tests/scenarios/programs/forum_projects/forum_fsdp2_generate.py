"""A tiny Llama, sharded by FSDP2, trained a little and asked for samples by generate()."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)

PROMPTS = [
    [5, 9, 12, 40, 7, 8],
    [5, 9, 12, 41, 7, 8],
    [5, 9, 12, 42, 7, 8, 60, 61, 62, 63, 3, 4],
]


def build(mesh):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(model, steps: int, rank: int):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        ids = torch.randint(2, 96, (4, 24), generator=generator)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def sample(model, prompt: list[int]) -> list[int]:
    model.eval()
    with torch.no_grad():
        output = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_length=28, do_sample=False, synced_gpus=False,
        )
    model.train()
    return output[0, len(prompt):].tolist()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = build(mesh)
    for round_ in range(30):
        loss = train(model, 5, rank)
        text = sample(model, PROMPTS[rank if round_ >= 2 else 0])
        dist.barrier()
        print(f"rank {rank} round {round_}: loss {loss:.3f}, sample {text[:8]}", flush=True)


if __name__ == "__main__":
    main()
