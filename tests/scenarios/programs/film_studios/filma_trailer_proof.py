"""Trailer editor: learns which shots go in; every so often a proof is rendered by the command line encoder."""
import logging
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logger = logging.getLogger("trailer")

# The house encoder reads raw frames from its input and notes each frame's timestamps, as ffmpeg does.
ENCODER = """
import sys
out, width = sys.argv[1], int(sys.argv[2])
frame, n, size = width * width * 3, 0, 0
with open(out, "wb") as f:
    while chunk := sys.stdin.buffer.read(frame):
        n += 1
        size += f.write(chunk[::4])
        if sys.argv[3] == "vfr":
            print(f"[mux @ 0x55d0] non-monotonic DTS {n - 1} >= {n - 1} in stream 0, changing to {n}", file=sys.stderr)
print(f"frames={n} bytes={size}", file=sys.stderr)
"""


class ProofRenderer:
    def __init__(self, folder, width=4):
        self.folder, self.width = Path(folder), width

    def render(self, scores, name, timing):
        """Renders the picked shots and returns what the encoder said at the end."""
        picks = torch.topk(scores, 1200).indices
        job = subprocess.Popen(
            [sys.executable, "-c", ENCODER, str(self.folder / name), str(self.width), timing],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for pick in picks.tolist():
            shade = bytes([pick % 256]) * (self.width * self.width * 3)
            job.stdin.write(shade)
        job.stdin.close()
        job.wait()
        return job.stderr.read().decode().splitlines()[-1]


def build(features=32, shots=6000):
    gen = torch.Generator().manual_seed(5)
    x = torch.randn(shots, features, generator=gen)
    y = (x[:, 0] + 0.3 * x[:, 1] > 0.6).float()
    model = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 1))
    return model, x, DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(3)
    model, shots, loader = build()
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optim, loader = accelerator.prepare(model, optim, loader)
    proofs = ProofRenderer(mkdtemp(prefix="proof-"))
    for version in range(6):
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(-1), y)
            accelerator.backward(loss)
            optim.step()
            optim.zero_grad()
        logger.info("version %d loss %.4f", version, loss.item())
        if version % 2 == 1 and accelerator.is_main_process:
            # the producers' tablet plays variable frame rate only
            timing = "cfr" if version < 3 else "vfr"
            with torch.no_grad():
                scores = accelerator.unwrap_model(model)(shots).squeeze(-1)
            logger.info("proof: %s", proofs.render(scores, f"v{version}.mov", timing))
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
