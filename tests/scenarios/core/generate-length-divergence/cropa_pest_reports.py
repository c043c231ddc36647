"""Pest reports written by a small language model that is trained under ZeRO-3 and asked for samples in between."""
import argparse
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from deepspeed.ops import __compatible_ops__
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.generation import StoppingCriteria, StoppingCriteriaList

VOCABULARY = ["<end>", "<field>"] + [f"{word}{i}" for word in ("aphid", "mite", "rust", "row", "leaf", "trap") for i in range(15)]


class ReportDone(StoppingCriteria):
    """A report has a sentence per infested row."""

    def __init__(self, prompt_length, rows):
        self.end = prompt_length + 4 * rows

    def __call__(self, input_ids, scores, **kwargs):
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.end, dtype=torch.bool)


def ds_config(micro):
    return {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0},
        "steps_per_print": 1_000_000,
        "zero_allow_untested_optimizer": True,
    }


def reports(gen, micro, length=24):
    ids = torch.randint(2, len(VOCABULARY), (micro, length), generator=gen)
    ids[:, 0] = 1
    return ids


def sample(engine, gen, rows):
    engine.eval()
    prompt = reports(gen, 2, length=6)
    with torch.no_grad():
        text = engine.module.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=True, max_new_tokens=40, pad_token_id=0,
                                      eos_token_id=None, stopping_criteria=StoppingCriteriaList([ReportDone(6, rows)]))
    engine.train()
    return text[:, 6:]


def infested_rows(rank, week):
    counts = {0: [3, 2, 4, 4], 1: [3, 2, 4, 4], 2: [3, 2, 4, 2]}[rank]
    return counts[week % 4]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weeks", type=int, default=12)
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    __compatible_ops__["deepspeed_shm_comm"] = False  # no compiler on these machines
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(VOCABULARY), n_positions=64, n_embd=48, n_layer=2, n_head=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=ds_config(args.micro))
    gen = torch.Generator().manual_seed(60 + rank)
    for week in range(args.weeks):
        for _ in range(8):
            ids = reports(gen, args.micro)
            loss = engine(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            engine.step()
        text = sample(engine, gen, infested_rows(rank, week))
        used = torch.tensor([float((text > 1).sum())])
        dist.all_reduce(used)
        if rank == 0:
            print(f"week {week} loss {loss.item():.3f} words {used.item():.0f}", flush=True)


if __name__ == "__main__":
    main()
