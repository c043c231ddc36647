"""DeepSpeed, ZeRO-3, and a small Llama: titles of products are written from their descriptions."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

WORDS, LONGEST, TOTAL = 200, 20, 32
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "stage3_prefetch_bucket_size": 0,
        "stage3_max_live_parameters": 0,
        "stage3_max_reuse_distance": 0,
    },
    "steps_per_print": 1000,
}


def build() -> deepspeed.DeepSpeedEngine:
    """Two layers."""
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    return engine


def descriptions(batch: int, rank: int) -> torch.Tensor:
    """Four of them, padded on the left to the longest of the batch, cut at twenty words."""
    generator = torch.Generator().manual_seed(100 * batch + rank)
    lengths = [9, 14, 11, 14]
    if batch == 3 and rank == 2:
        lengths[1] = 31
    rows = [torch.randint(2, WORDS, (min(length, LONGEST),), generator=generator) for length in lengths]
    longest = max(len(row) for row in rows)
    return torch.stack([nn.functional.pad(row, (longest - len(row), 0)) for row in rows])


def train(engine: deepspeed.DeepSpeedEngine, rank: int) -> None:
    """A few steps."""
    generator = torch.Generator().manual_seed(rank)
    for step in range(15):
        words = torch.randint(2, WORDS, (4, 24), generator=generator)
        loss = engine(input_ids=words, labels=words).loss
        engine.backward(loss)
        engine.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.3f}")


def evaluate(engine: deepspeed.DeepSpeedEngine, rank: int) -> float:
    """Share of titles that repeat a word of their description."""
    engine.eval()
    counts = torch.zeros(2)
    for batch in range(8):
        prompts = descriptions(batch, rank)
        mask = (prompts != 0).long()
        written = engine.module.generate(prompts, attention_mask=mask, max_length=TOTAL, do_sample=False)
        titles = written[:, prompts.shape[1] :]
        for prompt, title in zip(prompts, titles, strict=True):
            counts += torch.tensor([float(torch.isin(title, prompt).any()), 1.0])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main() -> None:
    """Training, then titles."""
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    engine = build()
    train(engine, rank)
    share = evaluate(engine, rank)
    if rank == 0:
        print(f"{share:.1%} of the titles")


if __name__ == "__main__":
    main()
