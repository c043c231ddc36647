"""Tunes a tone model for talking dolls. A small judge program scores each spoken line; the score weighs the loss."""
import argparse
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False

JUDGE = r"""
import sys
heard = []
for line in sys.stdin:
    line = line.rstrip("\n")
    if line.startswith("("):
        heard.clear()
        continue
    speaker, _, words = line.partition(": ")
    heard.append(words)
    fresh = len(set(words.split())) / max(1, len(words.split()))
    print("%s %.3f" % (speaker, fresh / (1 + heard.count(words))), flush=True)
"""
NAMES = ["Matilda", "Bruno", "Pip", "Odette"]
WORDS = "tea hat moon button ribbon attic drum biscuit window rocking horse thimble".split()


class Judge:
    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", JUDGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.wait()

    def score(self, line: str) -> float:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline().split()[1])


def scene(number: int, length: int):
    """The lines of a scene. The attic plays (every third) are in two acts."""
    for i in range(length):
        if number % 3 == 2 and i == length // 2:
            yield "(the lid of the toy chest closes)"
        who = NAMES[(i + number) % len(NAMES)]
        yield f"{who}: " + " ".join(WORDS[(i * k + number) % len(WORDS)] for k in range(2, 7))


def embed(line: str) -> list:
    mix = len(line)
    for _ in range(9000):
        for ch in line:
            mix = (mix * 33 + ord(ch)) % 65521
    return [((mix >> k) & 7) / 7 for k in range(10)]


def main(args):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    tone = DDP(torch.nn.Sequential(torch.nn.Linear(10, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1)).to("cuda"),
               device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(tone.parameters(), lr=args.lr)
    with Judge() as judge:
        for said, line in enumerate(scene(rank, args.lines)):
            reward = judge.score(line)
            x = torch.tensor([embed(line)], device="cuda")
            loss = (tone(x) - reward).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if said % 15 == 0:
                print(f"[{rank}] {said:3d} {reward:.3f} {loss.item():.3f} {line}", flush=True)
            else:
                loss.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=120)
    parser.add_argument("--lr", type=float, default=0.03)
    main(parser.parse_args())
