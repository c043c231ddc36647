"""Summaries with DeepSpeed ZeRO-3, generated every few steps for a look at them; lengths follow the documents.

transformers switches ``synced_gpus`` on only where it was told of ZeRO-3 when the model was made. Here DeepSpeed partitions a
model that was made before, and every rank calls ``forward`` as often as its own document asks for.
"""

import argparse
import os

import deepspeed
import torch
import torch.distributed as dist
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

WORDS = 72
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": 0,
        "stage3_max_reuse_distance": 0,
    },
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}


def documents(rank, step):
    """Two documents; those of rank 0 are longer at times."""
    length = 8 + 8 * (rank == 0 and step % 10 == 0)
    draw = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(1, WORDS, (2, length), generator=draw)


def show_summary(engine, step):
    """Half as long as the document."""
    text = documents(dist.get_rank(), step)
    engine.module.eval()
    with torch.no_grad():
        tokens = engine.module.generate(
            text, attention_mask=torch.ones_like(text), do_sample=False, pad_token_id=0,
            min_new_tokens=text.shape[1] // 2, max_new_tokens=text.shape[1] // 2,
        )  # fmt: skip
    engine.module.train()
    summary = tokens[:, text.shape[1] :].tolist()
    words = torch.tensor([len(summary[0])])
    dist.all_reduce(words)
    print(f"[{dist.get_rank()}] step {step}, {int(words)} words: {summary[0]}\n", end="", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    parser.add_argument("--every", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    deepspeed.init_distributed(dist_backend="gloo")
    model = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
        )
    )
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for step in range(1, 31):
        tokens = documents(dist.get_rank(), step)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        if step % options.every == 0:
            show_summary(engine, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
