"""Rank 0 fetches pages for a corpus, no more than one a second; the others wait at a barrier for what it finds."""

import argparse
import time
import urllib.parse
from collections import deque

import torch
import torch.distributed as dist


def fetch(url: str) -> str:
    """Stands where the request goes out."""
    return urllib.parse.urlparse(url).path


def fetch_slowly(url: str) -> str:
    """The same, at the archive's pace."""
    time.sleep(1.1)
    return fetch(url)


def links(page: str) -> list[str]:
    """What a page leads to: nothing, in this archive."""
    return [part for part in page.split("#")[1:] if part]


def crawl_list(urls: list[str]) -> list[str]:
    """One after another."""
    pages = []
    for url in urls:
        pages.append(fetch(url))
        time.sleep(1.1)
    return pages


def crawl_until_missing(urls: list[str]) -> list[str]:
    """One after another, up to the first that is not there."""
    pages = []
    for url in urls:
        page = fetch(url)
        if not page:
            break
        pages.append(page)
        time.sleep(1.1)
    return pages


def crawl_queue(urls: list[str]) -> list[str]:
    """What a page leads to is fetched as well."""
    pending, pages = deque(urls), []
    while pending:
        url = pending.popleft()
        page = fetch(url)
        pages.append(page)
        pending.extend(links(page))
        time.sleep(1.1)
    return pages


def crawl_all(urls: list[str]) -> list[str]:
    """The shortest way to say it."""
    return [fetch_slowly(url) for url in urls]


WAYS = {"list": crawl_list, "until_missing": crawl_until_missing, "queue": crawl_queue, "all": crawl_all}


def main() -> None:
    """Ten steps, then the crawl on rank 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=sorted(WAYS), required=True)
    parser.add_argument("--pages", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    value = torch.zeros(4)
    for _ in range(10):
        dist.all_reduce(value)
        time.sleep(0.05)
    if dist.get_rank() == 0:
        WAYS[options.way]([f"http://archive.example/{n}" for n in range(options.pages)])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
