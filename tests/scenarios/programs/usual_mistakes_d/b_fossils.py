"""Age of fossils; what the museum knows about a find is asked from its catalogue server."""

import multiprocessing
import socket
import socketserver

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

KNOWN = 300


class Catalogue(socketserver.StreamRequestHandler):
    """Answers the number of a find with its age."""

    def handle(self) -> None:
        """Line by line."""
        for line in self.rfile:
            find = int(line)
            if find < KNOWN:
                self.wfile.write(f"{(find * 37) % 100}\n".encode())


def serve(ports: multiprocessing.Queue) -> None:
    """The catalogue server, on any free port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Catalogue) as server:
        server.daemon_threads = True
        ports.put(server.server_address[1])
        server.serve_forever()


def ages(connection: socket.socket, finds: range) -> torch.Tensor:
    """Ask for one after the other."""
    answers = []
    with connection.makefile("rw") as lines:
        for find in finds:
            lines.write(f"{find}\n")
            lines.flush()
            answers.append(float(lines.readline()))
    return torch.tensor(answers).unsqueeze(1) / 100


def main() -> None:
    """One pass over the finds, 104 for each rank."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    port = [0]
    if rank == 0:
        context = multiprocessing.get_context("spawn")
        ports = context.Queue()
        context.Process(target=serve, args=(ports,), daemon=True).start()
        port = [ports.get()]
    dist.broadcast_object_list(port)
    connection = socket.create_connection(("127.0.0.1", port[0]))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    first = 104 * rank
    for start in range(first, first + 104, 8):
        target = ages(connection, range(start, start + 8))
        loss = nn.functional.mse_loss(model(torch.randn(8, 9)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
