"""Bimanual insertion policy with accelerate; success is predicted for a held-out set now and then."""
import logging

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset, random_split


def make_data(n=1920):
    g = torch.Generator().manual_seed(4)
    left, right = torch.randn(n, 7, generator=g), torch.randn(n, 7, generator=g)
    inserted = ((left - right).norm(dim=1) < 3.6).long()
    return TensorDataset(torch.cat([left, right], 1), inserted)


class Insertion(torch.nn.Module):
    def __init__(self, width=64, depth=3):
        super().__init__()
        layers, size = [], 14
        for _ in range(depth):
            layers += [torch.nn.Linear(size, width), torch.nn.SiLU()]
            size = width
        self.body = torch.nn.Sequential(*layers)
        self.success = torch.nn.Linear(size, 2)

    def forward(self, x):
        return self.success(self.body(x))


class Evaluator:
    def __init__(self, accelerator, loader):
        self.accelerator, self.loader = accelerator, loader

    @torch.no_grad()
    def __call__(self, model):
        model.eval()
        hits = []
        for x, y in self.loader:
            prediction = self.accelerator.unwrap_model(model)(x).argmax(-1)
            hits.append((prediction == y).float())
        model.train()
        return torch.cat(hits)

    def report(self, hits, epoch):
        everything = self.accelerator.gather_for_metrics(hits)
        logging.info("epoch %d: success prediction %.3f on %d", epoch, everything.mean().item(), len(everything))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    set_seed(21)
    train, held_out = random_split(make_data(), [1440, 480])
    model = Insertion()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader, eval_loader = accelerator.prepare(
        model, optimizer, DataLoader(train, batch_size=4, shuffle=True), DataLoader(held_out, batch_size=20)
    )
    evaluate = Evaluator(accelerator, eval_loader)
    for epoch in range(12):
        for step, (x, y) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if step % 40 == 0 and accelerator.is_main_process:
                logging.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
        if epoch % 4 != 3:
            continue
        hits = evaluate(model)
        if accelerator.is_main_process:
            evaluate.report(hits, epoch)
    accelerator.end_training()


if __name__ == "__main__":
    main()
