"""Fine-tuning of a story writer with FSDP2; between epochs the main process shows a story.

All ranks hold a part of the parameters, and so all would have to take part.
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

TOKENS = 56


def shard(model):
    for block in model.transformer.h:
        fully_shard(block)
    return fully_shard(model)


def story(model):
    """What the model makes of a beginning."""
    beginning = torch.tensor([[1, 2, 3]])
    model.eval()
    tokens = model.generate(beginning, max_new_tokens=10, do_sample=False, pad_token_id=0)
    model.train()
    return " ".join(str(token) for token in tokens[0].tolist())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    model = shard(GPT2LMHeadModel(GPT2Config(vocab_size=TOKENS, n_positions=32, n_embd=32, n_layer=2, n_head=2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        losses = torch.zeros(1)
        for _ in range(4):
            tokens = torch.randint(TOKENS, (2, 16))
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses += loss.detach()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {story(model)}", flush=True)
        dist.all_reduce(losses)
        print(f"{dist.get_rank()}: {losses.item():.2f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
