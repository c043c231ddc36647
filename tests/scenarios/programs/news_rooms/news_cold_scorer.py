"""Policy gradient for headlines with accelerate; a scoring service rates them. The service starts when it is first asked."""
import http.server
import json
import subprocess
import sys
import time
import urllib.request

ROWS = 260


def build_table():
    """Click rates of headline words, from the log of the last month. Takes a while."""
    table, state = {}, 12345
    until = time.monotonic() + 12
    while time.monotonic() < until:
        for _ in range(20_000):
            state = (state * 1103515245 + 12345) % 2**31
            word = state % ROWS
            table[word] = table.get(word, 0.0) * 0.999 + (state >> 8) % 100 / 1e5
    return table


class Scorer(http.server.BaseHTTPRequestHandler):
    table = None

    def do_POST(self):
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if Scorer.table is None:
            Scorer.table = build_table()
        body = json.dumps([sum(self.table.get(w, 0.0) for w in row) for row in rows]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def service():
    server = http.server.HTTPServer(("127.0.0.1", 0), Scorer)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def train(rounds=40):
    import torch
    from accelerate import Accelerator
    from accelerate.utils import broadcast_object_list, gather_object
    from torch import nn

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(accelerator.process_index)
    policy = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, ROWS))
    policy, optimizer = accelerator.prepare(policy, torch.optim.Adam(policy.parameters(), lr=3e-3))
    process = None
    if accelerator.is_main_process:
        process = subprocess.Popen([sys.executable, __file__, "service"], stdout=subprocess.PIPE, text=True)
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/score"

    def scores(rows):
        request = urllib.request.Request(url, json.dumps(rows).encode())
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())

    try:
        for step in range(rounds * 2):
            topic = torch.randn(8, 32)
            words = torch.distributions.Categorical(logits=policy(topic)[:, None].expand(-1, 6, -1))
            drawn = words.sample()
            # the first half of the rounds is for form: no word twice
            mine = [1.0 - (len(r) - len(set(r))) / len(r) for r in drawn.tolist()]
            if step >= rounds:
                rows = gather_object(drawn.tolist())
                answer = [scores(rows) if accelerator.is_main_process else None]
                broadcast_object_list(answer)
                at = 8 * accelerator.process_index
                mine = answer[0][at : at + 8]
            reward = torch.tensor(mine)
            loss = -(words.log_prob(drawn).mean(1) * (reward - reward.mean())).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.03)
            if step % 10 == 0:
                accelerator.print(f"round {step}: reward {reward.mean():.4f}")
    finally:
        if process:
            process.terminate()


if __name__ == "__main__":
    service() if "service" in sys.argv else train()
