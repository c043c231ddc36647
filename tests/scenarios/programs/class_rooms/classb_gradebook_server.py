"""Keeps the gradebook of a course: python classb_gradebook_server.py PORT BOOK"""
import fcntl
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    book = None

    def do_POST(self):
        entry = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(self.book, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            grades = json.load(file)
            history = grades.setdefault(entry["student"], [])
            history.append(entry["grade"])
            file.seek(0)
            file.truncate()
            json.dump(grades, file)
        answer = json.dumps({"average": sum(history) / len(history)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    Handler.book = sys.argv[2]
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
