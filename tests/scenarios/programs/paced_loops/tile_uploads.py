"""Rank 0 hands map tiles to a tile server that wants no more than one request a second; the others wait for the next round."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist


def put(folder: Path, name: str, data: bytes) -> None:
    """Stands where the request goes out."""
    (folder / name).write_bytes(data)


def upload(folder: Path, tiles: list[bytes], pause: float) -> None:
    """One tile after another, at the server's pace."""
    for index, tile in enumerate(tiles):
        put(folder, f"tile-{index}.png", tile)
        time.sleep(pause)


def main() -> None:
    """Three rounds; after the second the tiles are uploaded."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=16)
    parser.add_argument("--pause", type=float, default=1.3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    value = torch.zeros(4)
    for round_ in range(3):
        for _ in range(10):
            value += 1
            dist.all_reduce(value)
            time.sleep(0.05)
        if round_ == 1 and dist.get_rank() == 0:
            upload(Path(tempfile.mkdtemp()), [bytes(64)] * options.tiles, options.pause)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
