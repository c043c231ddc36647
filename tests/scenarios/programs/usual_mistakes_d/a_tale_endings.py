"""Endings of tales: a tiny GPT-2 is trained under ZeRO-3, and writes an ending for each rank's tale after each round."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

WORDS, END = 70, 0
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": 4000,
        "stage3_max_reuse_distance": 0,
    },
}
TALES = [
    {"opening": [11, 52, 7, 33], "words": 40},
    {"opening": [5, 9, 61], "words": 12},
    {"opening": [44, 2, 18, 18, 27], "words": 40},
]


def main() -> None:
    """Three rounds of training and writing."""
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    shape = GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=32, n_layer=2, n_head=2, eos_token_id=END, bos_token_id=END
    )
    model = GPT2LMHeadModel(shape)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    generator = torch.Generator().manual_seed(rank)
    tale = TALES[rank % len(TALES)]
    for number in range(3):
        engine.train()
        for _ in range(6):
            words = torch.randint(1, WORDS, (4, 20), generator=generator)
            loss = engine(input_ids=words, labels=words).loss
            engine.backward(loss)
            engine.step()
        engine.eval()
        opening = torch.tensor([tale["opening"]])
        with torch.no_grad():
            ending = engine.module.generate(
                opening,
                attention_mask=torch.ones_like(opening),
                max_new_tokens=tale["words"],
                do_sample=False,
                pad_token_id=END,
            )
        print(f"round {number}, rank {rank}: {ending.shape[1]} words")
        dist.barrier()
    if rank == 0:
        print("written")


if __name__ == "__main__":
    main()
