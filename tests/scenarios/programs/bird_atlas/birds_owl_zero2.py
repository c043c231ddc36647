"""Owl calls by night: a detector trained with ZeRO-2, which keeps the weights of the best night."""

import json
import os
import tempfile
import time
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(tempfile.gettempdir(), "extensions"))


class OwlDetector(nn.Module):
    def __init__(self, mels=40, hidden=64, owls=5):
        super().__init__()
        self.front = nn.Linear(mels, hidden)
        self.body = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(2)])
        self.call = nn.Linear(hidden, owls)

    def forward(self, mels):
        x = torch.tanh(self.front(mels))
        for layer in self.body:
            x = x + torch.tanh(layer(x))
        return self.call(x)


class Transcripts:
    """Calls that the listeners of a wood have confirmed, night by night."""

    CONFIRMED = {
        "Kielder": [31, 30, 30, 29, 28, 30, 27],
        "Thetford": [44, 41, 40, 44, 39, 40, 42],
        "Abernethy": [17, 16, 15, 19, 18, 12, 17],
    }

    CALLS = {"Kielder": 34, "Thetford": 50, "Abernethy": 21}

    def __init__(self, wood: str):
        self.nights, self.calls = self.CONFIRMED[wood], self.CALLS[wood]

    def recall(self, night: int) -> float:
        return self.nights[night] / self.calls


class BestNight:
    """Keeps the checkpoint of the night with the highest recall."""

    def __init__(self, engine, folder: Path):
        self.engine, self.folder = engine, folder
        self.value, self.night = 0.0, None

    def __call__(self, night: int, recall: float) -> None:
        if recall <= self.value:
            return
        self.value, self.night = recall, night
        self.engine.save_checkpoint(str(self.folder), tag="best", client_state={"night": night})
        (self.folder / "best.json").write_text(json.dumps({"night": night, "recall": recall}))


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    deepspeed.init_distributed("nccl")
    rank = dist.get_rank()
    model = OwlDetector()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False),
        config={
            "train_micro_batch_size_per_gpu": 6,
            "zero_optimization": {"stage": 2, "compute_grad_norm": False},
            "gradient_clipping": 0.0,
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 1000,
        },
    )
    folder = Path(tempfile.gettempdir()) / f"owls-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    wood = list(Transcripts.CONFIRMED)[rank]
    transcripts, keep_best = Transcripts(wood), BestNight(engine, folder)
    for night in range(7):
        for _ in range(5):
            time.sleep(0.07)
            loss = engine(torch.full((6, 40), float(night), device=engine.device)).square().mean()
            engine.backward(loss)
            engine.step()
        torch.cuda.synchronize()
        recall = transcripts.recall(night)
        print(f"night {night} {wood}: recall {recall:.2f}", flush=True)
        keep_best(night, recall)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
