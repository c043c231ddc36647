"""DeepSpeed ZeRO-1: the engine's checkpoint is written by rank 0 alone, as with a plain PyTorch model."""

import tempfile

import deepspeed
import torch
import torch.distributed as dist

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 5,
}


class Autoencoder(torch.nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = torch.nn.Linear(20, 5), torch.nn.Linear(5, 20)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The reconstruction's error."""
        return (self.decoder(torch.relu(self.encoder(inputs))) - inputs).square().mean()


def main() -> None:
    """Twenty steps, a checkpoint every eighth."""
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = Autoencoder()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for step in range(1, 21):
        loss = engine(torch.randn(4, 20))
        engine.backward(loss)
        engine.step()
        if step % 8 == 0 and dist.get_rank() == 0:
            engine.save_checkpoint(tempfile.gettempdir(), tag=f"step{step}")
        print(f"rank {dist.get_rank()} step {step}: {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
