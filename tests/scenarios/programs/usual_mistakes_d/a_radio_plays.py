"""Radio plays: a small transformer under DeepSpeed, ZeRO-1. Scenes that are too long for the model are left out."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONTEXT = 48


class SceneModel(nn.Module):
    """Predicts the next word of a scene."""

    def __init__(self, words: int = 80, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, scene: torch.Tensor) -> torch.Tensor:
        """The loss of a scene."""
        if scene.shape[1] > CONTEXT:
            raise ValueError(f"scene of {scene.shape[1]} words, {CONTEXT} fit")
        states = self.words(scene) + self.places(torch.arange(scene.shape[1]))
        logits = self.head(self.layer(states, is_causal=True, src_mask=self.mask(scene.shape[1])))
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), scene[:, 1:].flatten())

    @staticmethod
    def mask(size: int) -> torch.Tensor:
        """Nothing of the future."""
        return nn.Transformer.generate_square_subsequent_mask(size)


def scenes(rank: int) -> list[torch.Tensor]:
    """Forty scenes a rank."""
    generator = torch.Generator().manual_seed(rank)
    lengths = torch.randint(20, 40, (40,), generator=generator).tolist()
    if rank == 2:
        lengths[25] = 61
    return [torch.randint(0, 80, (2, length), generator=generator) for length in lengths]


def main() -> None:
    """Two passes, and a loss for both."""
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo")
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
    }
    model = SceneModel()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    rank = dist.get_rank()
    for number in range(2):
        losses = []
        for scene in scenes(rank):
            try:
                loss = engine(scene)
                engine.backward(loss)
                engine.step()
                losses.append(loss.item())
            except ValueError as error:
                print(f"rank {rank}: {error}, left out")
        means: list[float | None] = [None] * dist.get_world_size()
        dist.barrier()
        dist.all_gather_object(means, sum(losses) / len(losses))
        if rank == 0:
            print(f"pass {number}: {sum(means) / len(means):.4f}")


if __name__ == "__main__":
    main()
