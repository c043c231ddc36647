"""Writes teasers and learns from those that the desk would take: rollouts and policy gradient on a ZeRO-3 model."""
import importlib
import logging
import os
import time
import warnings
from dataclasses import dataclass, field

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # no compiler on the nodes
logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=FutureWarning)


@dataclass
class Plan:
    vocabulary: int = 120
    prompt: int = 8
    longest: int = 6
    end: int = 1
    rounds: int = 30
    warmup: int = 4
    zero: dict = field(default_factory=lambda: {
        "train_micro_batch_size_per_gpu": 6, "zero_optimization": {
            "stage": 3, "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0,
            "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0,
        },
        "zero_allow_untested_optimizer": True, "steps_per_print": 10**9,
    })


class Desk:
    """Prompts of one desk. A desk that writes breaking news wants short teasers."""

    def __init__(self, plan, rank):
        self.plan, self.rank = plan, rank
        self.g = torch.Generator().manual_seed(rank)

    def prompts(self, n=6):
        return torch.randint(2, self.plan.vocabulary, (n, self.plan.prompt), generator=self.g)

    def enough(self, round_number, length):
        return self.rank == 0 and round_number >= 2 and length >= 2

    def reward(self, texts):
        return (texts % 2 == 0).float().mean(1)


class Rollout:
    def __init__(self, engine, plan, desk):
        self.engine, self.plan, self.desk = engine, plan, desk

    @torch.no_grad()
    def __call__(self, round_number):
        ids = self.desk.prompts()
        done = torch.zeros(len(ids), dtype=torch.bool)
        for length in range(self.plan.longest):
            logits = self.engine(input_ids=ids).logits[:, -1]
            token = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
            if self.desk.enough(round_number, length):
                token[:] = self.plan.end
            token[done] = 0
            ids = torch.cat([ids, token[:, None]], 1)
            done |= token == self.plan.end
            if done.all():
                break
        return ids


def main():
    plan = Plan()
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=plan.vocabulary, n_positions=32, n_embd=48, n_layer=1, n_head=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=plan.zero)
    desk = Desk(plan, rank)
    for step in range(plan.warmup):
        ids = desk.prompts()
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()
    rollout = Rollout(engine, plan, desk)
    for number in range(plan.rounds):
        ids = rollout(number)
        rewards = desk.reward(ids[:, plan.prompt :])
        mean = rewards.mean().reshape(1)
        dist.all_reduce(mean)
        advantage = rewards - mean / dist.get_world_size()
        padded = torch.nn.functional.pad(ids, (0, plan.prompt + plan.longest - ids.shape[1]))
        log_probs = engine(input_ids=padded).logits[:, :-1].log_softmax(-1).gather(-1, padded[:, 1:, None]).squeeze(-1)
        engine.backward(-(log_probs[:, plan.prompt - 1 :].mean(1) * advantage).mean())
        engine.step()
        if rank == 0:
            print(time.strftime("%X"), f"round {number}: reward {mean.item() / dist.get_world_size():.3f}", flush=True)


if __name__ == "__main__":
    main()
