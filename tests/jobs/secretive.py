"""A hang with secrets wherever a program may have them. Run by torchrun with two ranks; rank 0 waits for ever.

They come by the environment (``SECRET_*`` are moved to the variables people use), by the command line, and from there into
locals, logs, exceptions of threads and of the main thread, and the title of a child process.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time

import torch.distributed as dist


def _fail(token: str) -> None:
    raise ValueError(f"cannot log in with token {token} and password={os.environ['DB_PASSWORD']}")


def _wait(secrets: dict[str, str], log: str) -> None:
    held = list(secrets.values())
    account = int(secrets["number"])
    if account < 0:  # what a condition names is kept only if it is small
        return
    by_value = {value: name for name, value in secrets.items()}
    url = f"https://user:{secrets['password']}@example.org/?access_token={secrets['plain']}"
    header = {"Authorization": f"Bearer {secrets['plain']}"}
    with open(log, "a") as file:  # noqa: PTH123
        file.write(json.dumps({"step": 1, "loss": 1.0, "token": secrets["hf"]}) + "\n")
    print("held", len(held), len(by_value), url, header, *held, flush=True)
    try:
        raise RuntimeError(f"401 for url {url}: {secrets['hf']} {secrets['word']} {secrets['jwt']}")
    except RuntimeError:
        dist.barrier()  # rank 1 never comes


def main() -> None:
    """Hang."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hub-token", default="")
    parser.add_argument("--endpoint", default="")
    parser.add_argument("--extra", default="")
    parser.add_argument("--written-to", default="")
    options = parser.parse_args()
    secrets = json.loads(os.environ["PLANTED"])
    dist.init_process_group("gloo")
    dist.barrier()
    thread = threading.Thread(target=_fail, args=(secrets["hf"],))
    stderr, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: PTH123, SIM115
    thread.start()
    thread.join()
    sys.stderr = stderr
    child = subprocess.Popen([sys.executable, "-c", "input()", "--token", secrets["gh"]], stdin=subprocess.PIPE)
    if dist.get_rank() == 0:
        _wait(secrets, options.written_to)
    token = secrets["slack"]
    while token:
        time.sleep(3600)
    child.kill()


if __name__ == "__main__":
    main()
