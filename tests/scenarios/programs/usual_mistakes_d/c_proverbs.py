"""Proverbs are learnt by a small GPT-2 under FSDP2, and continued from their first words after each epoch."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

VOCABULARY, LONGEST = 96, 24
BEGINNINGS = {
    0: [[5, 9, 17, 21], [8, 2, 40, 33]],
    1: [[61, 7, 12, 30, 30, 2, 71, 14, 9], [4, 88, 3, 19, 52, 6, 31, 77, 10]],
    2: [[70, 11, 23, 5], [13, 13, 64, 90]],
}


def proverbs(step: int, rank: int) -> torch.Tensor:
    """Eight of them."""
    generator = torch.Generator().manual_seed(13 * step + rank)
    return torch.randint(1, VOCABULARY, (8, 20), generator=generator)


def build() -> GPT2LMHeadModel:
    """From scratch, sharded block by block."""
    torch.manual_seed(11)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    for block in model.transformer.h:
        fully_shard(block)
    fully_shard(model)
    return model


@torch.no_grad()
def continue_proverbs(model: GPT2LMHeadModel, rank: int) -> int:
    """This rank's beginnings, up to the longest text that fits on a card; how many tokens were added."""
    model.eval()
    prompts = torch.tensor(BEGINNINGS[rank])
    texts = prompts
    while texts.shape[1] < LONGEST:
        logits = model(input_ids=texts).logits[:, -1]
        texts = torch.cat([texts, logits.argmax(dim=-1, keepdim=True)], dim=1)
    model.train()
    return texts.numel() - prompts.numel()


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(4):
        for step in range(8):
            batch = proverbs(8 * epoch + step, rank)
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        added = torch.tensor(continue_proverbs(model, rank))
        dist.all_reduce(added)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, {added.item()} new tokens", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
