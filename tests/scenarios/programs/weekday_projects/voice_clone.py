"""Adapts a voice model with accelerate; the first samples are to be judged by ear before it goes on."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


class Adapter(torch.nn.Module):
    def __init__(self, bands: int = 20) -> None:
        super().__init__()
        self.down, self.up = torch.nn.Linear(bands, 4), torch.nn.Linear(4, bands)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        return mel + self.up(torch.relu(self.down(mel)))


def listen(accelerator: Accelerator, step: int) -> None:
    if not accelerator.is_main_process:
        return
    print(f"wrote sample-{step}.wav", flush=True)
    answer = input("does it sound right? [Y/n] ")
    if answer.strip().lower() == "n":
        accelerator.set_trigger()


def main() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(2)
    net = Adapter()
    loader = DataLoader(TensorDataset(torch.rand(96, 20)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), 1e-3), loader)
    step = 0
    for _ in range(4):
        for (mel,) in loader:
            loss = torch.nn.functional.l1_loss(model(mel), mel.roll(1, 1))
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == 10:
                listen(accelerator, step)
                if accelerator.check_trigger():
                    return
    accelerator.end_training()


if __name__ == "__main__":
    main()
