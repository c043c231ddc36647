"""Text-to-image fine-tuning with accelerate: validation images and their scores go to the tracker."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.net = nn.Linear(1, 8), nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU())
        self.out = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, noisy, t):
        return self.out(self.net(noisy) + self.time(t)[:, :, None, None])


def log_validation(model, accelerator, step):
    unet = accelerator.unwrap_model(model)
    generator = torch.Generator().manual_seed(step + accelerator.process_index)
    image = torch.randn(2, 3, 16, 16, generator=generator)
    with torch.no_grad():
        for t in torch.linspace(1, 0, 5):
            image = image - 0.2 * unet(image, t.expand(2, 1))
    score = image.flatten(1).std(dim=1)
    if accelerator.is_main_process:
        scores = accelerator.gather(score)
        accelerator.print(f"step {step}: clip score {scores.mean().item():.3f} of {len(scores)} images", flush=True)
    return image


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(192, 3, 16, 16))
    model = UNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4, shuffle=True))
    step = 0
    for epoch in range(3):
        for (images,) in loader:
            with accelerator.accumulate(model):
                t = torch.rand(len(images), 1)
                noise = torch.randn_like(images)
                mixed = images * (1 - t[..., None, None]) + noise * t[..., None, None]
                loss = nn.functional.mse_loss(model(mixed, t), noise - images)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            if step % 10 == 0:
                log_validation(model, accelerator, step)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
