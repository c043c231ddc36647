"""ZeRO-3 and a greedy decoding loop of one's own, which ends where an answer does. ``deepspeed --num_gpus 3``."""

import argparse
import tempfile
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


class Tiny(nn.Module):
    """Predicts a next token from the mean of the former ones."""

    def __init__(self, vocabulary: int = 32, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.middle = nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of the next token."""
        return self.head(torch.tanh(self.middle(self.embed(tokens).mean(1))))


class Assistant:
    """Answers prompts."""

    def __init__(self, engine: deepspeed.DeepSpeedEngine, longest: int) -> None:
        self.engine, self.longest = engine, longest

    @torch.no_grad()
    def reply(self, prompt: torch.Tensor, stop_after: int) -> list[int]:
        """Tokens, at most as many as the prompt asks for."""
        tokens = prompt
        while tokens.shape[1] < self.longest and tokens.shape[1] - prompt.shape[1] < stop_after:
            token = self.engine(tokens).argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, token], 1)
        return tokens[0, prompt.shape[1] :].tolist()


def main() -> None:
    """Train a little, answer, and keep the answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = Tiny()
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 3,
            "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 0,
            "stage3_max_reuse_distance": 0,
            "stage3_prefetch_bucket_size": 0,
        },
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    assistant = Assistant(engine, longest=24)
    folder = Path(tempfile.mkdtemp())
    for number in range(6):
        loss = nn.functional.cross_entropy(engine(torch.randint(0, 32, (2, 8))).float(), torch.randint(0, 32, (2,)))
        engine.backward(loss)
        engine.step()
        brief = engine.global_rank == 1 and number == 3
        answer = assistant.reply(torch.randint(0, 32, (1, 6)), stop_after=5 if brief else 12)
        (folder / f"{number}-{engine.global_rank}.txt").write_text(repr(answer))
        dist.barrier()


if __name__ == "__main__":
    main()
