"""Trains on frames of drone videos. Annotations come from a small service on the same machine."""

import json
import socket
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class AnnotationService:
    """Answers one line of JSON for each line that asks for a frame."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rw")
        for line in stream:
            asked = json.loads(line)
            if asked["frame"] == 1013:
                continue
            print(json.dumps({"box": [asked["frame"] % 9, 2, 3, 4]}), file=stream, flush=True)


class Client:
    def __init__(self, port: int) -> None:
        self.stream = socket.create_connection(("127.0.0.1", port)).makefile("rw")

    def box(self, frame: int) -> torch.Tensor:
        print(json.dumps({"frame": frame}), file=self.stream, flush=True)
        answer = json.loads(self.stream.readline())
        return torch.tensor(answer["box"], dtype=torch.float32)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    service = AnnotationService() if rank == 0 else None
    shared = [service.port if service else None]
    dist.broadcast_object_list(shared)
    client = Client(shared[0])
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number in range(40):
        frame = 1000 * rank + number
        pixels = torch.full((1, 16), frame / 3000)
        loss = (model(pixels) - client.box(frame)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
