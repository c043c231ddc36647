"""The real Prometheus and Alertmanager with the configuration of ``deploy/``, and a webhook that keeps what it is sent."""

from __future__ import annotations

import json
import shutil
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from support import Job, JobRunner, find_free_port, wait_for

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
_PACKAGES = {"prometheus": "prometheus", "prometheus-alertmanager": "prometheus-alertmanager"}


@dataclass(frozen=True)
class Message:
    """A request that the webhook got: when, where, and its JSON."""

    at_unix_s: float
    path: str
    body: Any


@dataclass
class Webhook:
    """A receiver on the loopback; ``messages`` grows."""

    url: str
    messages: list[Message] = field(default_factory=list)

    def alerts(self, path: str, status: str) -> list[tuple[Message, dict[str, Any]]]:
        """Alerts of Alertmanager's messages to a path, with the message each came in."""
        messages = [m for m in list(self.messages) if m.path == path]
        return [(m, alert) for m in messages for alert in m.body["alerts"] if alert["status"] == status]


@contextmanager
def webhook() -> Iterator[Webhook]:
    """A webhook that takes everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            found.messages.append(Message(time.time(), self.path, json.loads(data)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Webhook(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get_json(url: str, **parameters: str) -> Any:
    """The JSON at a URL of ours."""
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    with urllib.request.urlopen(url + query, timeout=30.0) as answer:  # noqa: S310  # it is ours
        return json.load(answer)


def post_json(url: str, value: object) -> None:
    """Post a value to a URL of ours."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(value).encode(), headers)  # noqa: S310  # it is ours
    urllib.request.urlopen(request, timeout=30.0).close()  # noqa: S310


def start_alertmanager(jobs: JobRunner, folder: Path, receiver: str, group_interval: str = "1s") -> str:
    """Start Alertmanager as shipped, delivering to ``receiver``; returns its URL once it is ready.

    Only what would make a test wait is shortened: how soon a group is notified again of what has changed.
    """
    folder.mkdir()
    config = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    config["templates"] = [str(DEPLOY / "alertmanager" / "hangwatch.tmpl")]
    for route in (config["route"], *config["route"]["routes"]):
        route["group_interval"] = group_interval
    for one in config["receivers"]:
        one["webhook_configs"][0]["url"] = f"{receiver}/{one['name']}"
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{find_free_port()}"
    job = jobs.start(
        [
            _program("prometheus-alertmanager"), f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}", f"--web.listen-address={address}", "--cluster.listen-address=",
        ]
    )  # fmt: skip
    return _when_ready(job, f"http://{address}")


def start_prometheus(
    jobs: JobRunner, folder: Path, target: str, alertmanager: str, *, nodes: int | None = None, interval: str = "1s"
) -> str:
    """Start Prometheus as shipped, scraping ``target`` each ``interval``; returns its URL once it is ready.

    ``nodes``: the target stands for so many agents, each at a path of its own (``/NODE/metrics``).
    """
    folder.mkdir()
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    config["rule_files"] = [str(DEPLOY / "prometheus" / path) for path in config["rule_files"]]
    labels = [{"instance": f"gpu-{n}:9753", "__metrics_path__": f"/{n}/metrics"} for n in range(nodes or 0)] or [{}]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target], "labels": one} for one in labels]
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [alertmanager.removeprefix("http://")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{find_free_port()}"
    job = jobs.start(
        [
            _program("prometheus"), f"--config.file={folder / 'prometheus.yml'}", "--log.level=warn",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}",
        ]
    )  # fmt: skip
    return _when_ready(job, f"http://{address}")


def query(prometheus: str, expression: str, **parameters: str) -> list[dict[str, Any]]:
    """The series that an expression gives; with ``start``, ``end`` and ``step`` over that range."""
    kind = "query_range" if "start" in parameters else "query"
    answer = get_json(f"{prometheus}/api/v1/{kind}", query=expression, **parameters)
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def _program(name: str) -> str:
    program = shutil.which(name)
    assert program is not None, f"{name} is missing; install it with 'apt-get install {_PACKAGES[name]}'"
    return program


def _when_ready(job: Job, url: str) -> str:
    def ready() -> bool:
        assert job.process.poll() is None, job.stderr()
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5.0) as answer:  # noqa: S310  # it is ours
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    wait_for(ready, 60.0, f"{url} to be ready", poll_s=0.1)
    return url
