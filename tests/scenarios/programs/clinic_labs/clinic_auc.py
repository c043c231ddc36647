"""Diabetic retinopathy grading; torchmetrics keeps the validation scores."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torchmetrics
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Fundus(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.grade = torch.randint(0, 2, (count,), generator=generator)
        self.image = torch.randn(count, 3, 40, 40, generator=generator)
        self.image[self.grade == 1, 0, 10:20, 10:20] += 0.7

    def __len__(self):
        return len(self.grade)

    def __getitem__(self, index):
        return self.image[index], self.grade[index]


def build():
    torch.manual_seed(2)
    layers = [nn.Conv2d(3, 16, 5, stride=2), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1))


class Grader:
    def __init__(self, rank, world):
        self.rank = rank
        self.net = DistributedDataParallel(build())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.sampler = DistributedSampler(Fundus(900, 0), world, rank, drop_last=True)
        self.training = DataLoader(self.sampler.dataset, batch_size=6, sampler=self.sampler)
        validation = Fundus(240, 1)
        self.validation = DataLoader(validation, batch_size=20, sampler=DistributedSampler(validation, world, rank))
        self.accuracy = torchmetrics.Accuracy(task="binary")
        self.auc = torchmetrics.AUROC(task="binary")

    def train(self, epoch):
        self.sampler.set_epoch(epoch)
        self.net.train()
        for image, grade in self.training:
            logit = self.net(image).squeeze(1)
            self.optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(logit, grade.float()).backward()
            self.optimizer.step()

    @torch.inference_mode()
    def validate(self, epoch):
        self.net.eval()
        for image, grade in self.validation:
            score = self.net.module(image).squeeze(1).sigmoid()
            self.accuracy.update(score, grade)
            self.auc.update(score, grade)
        if self.rank == 0:
            print(f"epoch {epoch}: accuracy {self.accuracy.compute():.3f}, auc {self.auc.compute():.3f}", flush=True)
        self.accuracy.reset()
        self.auc.reset()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    grader = Grader(dist.get_rank(), dist.get_world_size())
    for epoch in range(8):
        grader.train(epoch)
        grader.validate(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
