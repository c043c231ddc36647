"""Quotas of the milk routes over a socket: one line of JSON in, one line of JSON out."""
import fcntl
import json
import socketserver
import sys
from pathlib import Path


class Quota(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            request = json.loads(line)
            answer = {"litres": 900 + 7 * (request["route"] % 40)}
            if request.get("settle"):
                book = Path(request["book"])
                with book.open("a+") as ledger:
                    fcntl.flock(ledger, fcntl.LOCK_EX)
                    ledger.write(json.dumps({"route": request["route"], **answer}) + "\n")
            self.wfile.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Quota) as server:
        print(server.server_address[1], flush=True)
        server.daemon_threads = True
        server.serve_forever()
    sys.exit(0)
