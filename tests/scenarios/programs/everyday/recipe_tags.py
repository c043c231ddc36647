"""Tag recipes with accelerate; the running loss is averaged over all processes for the log."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self, ingredients: int = 90, tags: int = 12):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(ingredients, 64), nn.GELU(), nn.Dropout(0.1))
        self.tags = nn.Linear(64, tags)

    def forward(self, recipe, labels):
        logits = self.tags(self.body(recipe))
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)


def log_metrics(accelerator, step, loss, history):
    if not accelerator.is_main_process:
        return
    average = accelerator.gather(loss.detach().unsqueeze(0)).mean().item()
    history.append((step, average))
    print(f"step {step:4d} | loss {average:.4f}")


def main():
    set_seed(42)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    recipes = (torch.rand(960, 90) < 0.1).float()
    labels = (torch.rand(960, 12) < 0.2).float()
    loader = DataLoader(TensorDataset(recipes, labels), batch_size=16, shuffle=True, drop_last=True)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    history = []
    step = 0
    for _ in range(3):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(*batch)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            step += 1
            if step % 12 == 0:
                log_metrics(accelerator, step, loss, history)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
