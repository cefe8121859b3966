#!/usr/bin/env python3
"""Runs the Python metadata server of vLLM's HF3FS connector from its source or the text of its documentation.

Usage: python_server.py TEXT PORT fast|plain

TEXT is hf3fs_metadata_server.py of vLLM, or a copy of the project's documentation page, which contains the source of
the server's classes; they run unchanged. Two small classes that some copies of the page lack are below, written after
its description.

With "fast", uvicorn runs on uvloop and httptools, which have to be installed; with "plain", on asyncio and h11.
"""
import asyncio  # noqa: F401  used by the classes
import logging
import sys
import threading  # noqa: F401
from dataclasses import dataclass, field

try:
    import orjson
except ImportError:  # the class reads bodies with it; the standard parser does the same more slowly
    import json as orjson
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse

try:
    from fastapi.responses import ORJSONResponse
except ImportError:
    ORJSONResponse = JSONResponse


@dataclass
class RankFileMetadata:
    """The pages of one rank: a list of free ones, taken from the front."""

    rank: int
    num_pages: int
    free_pages: list

    def allocate_pages(self, count):
        if count > len(self.free_pages):
            return []
        taken = self.free_pages[:count]
        self.free_pages = self.free_pages[count:]
        return taken

    def release_pages(self, pages):
        for page in pages:
            if page not in self.free_pages:
                self.free_pages.append(page)


@dataclass
class KeyMetadata:
    """The ranks that hold a key, and the places."""

    key: str
    rank_to_page: dict = field(default_factory=dict)
    tp_world_size: int = 0

    def is_complete(self):
        return len(self.rank_to_page) == self.tp_world_size

    def add_rank_page(self, rank, page):
        self.rank_to_page[rank] = page

    def get_rank_page(self, rank):
        return self.rank_to_page.get(rank)


def class_text(text, name):
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"class {name}"))
    end = start + 1
    while end < len(lines) and (not lines[end] or lines[end].startswith(" ")):
        end += 1
    return "\n".join(lines[start:end])


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    scope = globals()
    has_orjson = orjson.__name__ == "orjson"
    scope.update(logger=logging.getLogger("hf3fs"), HAS_ORJSON=has_orjson)
    if not has_orjson:
        scope.update(ORJSONResponse=JSONResponse)
    for name in ("GlobalMetadataState", "Hf3fsMetadataServer"):
        exec(class_text(text, name), scope)  # noqa: S102  that is what this program is for
    server = scope["Hf3fsMetadataServer"]()
    # The names make a missing package an error instead of a slower server.
    how = {"loop": "uvloop", "http": "httptools"} if sys.argv[3] == "fast" else {"loop": "asyncio", "http": "h11"}
    uvicorn.run(server.app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False, **how)


if __name__ == "__main__":
    main()
