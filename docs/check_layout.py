"""Look at the pages of a built site in Chromium: 1280 and 500 pixels, light and dark.

`python docs/check_layout.py build/site` prints what is wrong; the exit status is 1 if
anything is. Further arguments are patterns of the pages to look at, such as
``"schemes/*"`` or ``"!api/*"``; without them it looks at every page. Chromium is the
program of that name, or the one that the variable ``CHROMIUM`` names.

On each page it looks for

- an element wider than its column, and a page that scrolls sideways; a box that scrolls
  counts by its own width;
- code and formulas that are cut off at 1280 pixels, where none may need to scroll, and
  headings that are cut off;
- a table of text, of fewer than eight columns, that scrolls at 1280 pixels;
- a cell of a table at 500 pixels that has about one word a line, or text that runs into
  the next cell;
- a font that is smaller at 500 pixels than at 1280;
- a picture without alt text, and one without a caption;
- text whose contrast with its background is below 4.5.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TypedDict

DRIVER = "/_look.html"
SCRIPT = Path(__file__).with_suffix(".js")
#: A page that takes longer than this many seconds is a fault.
PATIENCE = 120
OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--window-size=1400,1000",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
]


class Report(TypedDict):
    """Faults of one page, as the driver's page sends them."""

    page: str
    faults: list[str]


class Server(ThreadingHTTPServer):
    """The site, the page that looks at it, and the reports of that page."""

    daemon_threads = True
    pages: list[str]
    reports: Queue[Report]


class Handler(SimpleHTTPRequestHandler):
    """Files of the site; the driver's page, and its reports."""

    server: Server

    def do_GET(self) -> None:
        if self.path != DRIVER:
            super().do_GET()
            return
        pages = json.dumps(self.server.pages)
        script = f"const PAGES = {pages};\n{SCRIPT.read_text('utf-8')}"
        body = f"<!doctype html><body><script>{script}</script>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.reports.put(json.loads(self.rfile.read(length)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Print nothing."""


def chosen(root: Path, patterns: list[str]) -> list[str]:
    """Return the pages below `root` that the patterns name, all without patterns."""
    names = [path.relative_to(root).as_posix() for path in root.rglob("*.html")]
    names = [name for name in sorted(names) if not name.startswith("_static/")]
    without = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    return [
        name
        for name in names
        if any(fnmatch(name, pattern) for pattern in wanted)
        and not any(fnmatch(name, pattern) for pattern in without)
    ]


def browser() -> str:
    for name in (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser"):
        path = shutil.which(name) if name else None
        if path:
            return path
    sys.exit("no Chromium here: apt-get install chromium")


def look(root: Path, pages: list[str]) -> dict[str, list[str]]:
    """Return the faults of each page, seen by Chromium."""
    server = Server(("127.0.0.1", 0), partial(Handler, directory=str(root)))
    server.pages, server.reports = pages, Queue()
    Thread(target=server.serve_forever, daemon=True).start()
    faults: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as home:
        address = f"http://127.0.0.1:{server.server_port}{DRIVER}"
        command = [browser(), *OPTIONS, f"--user-data-dir={home}", address]
        silent = subprocess.DEVNULL
        chromium = subprocess.Popen(command, stdout=silent, stderr=silent)
        try:
            for _ in pages:
                report = server.reports.get(timeout=PATIENCE)
                faults[report["page"]] = report["faults"]
        except Empty:
            missing = next(page for page in pages if page not in faults)
            faults[missing] = [f"no answer within {PATIENCE} seconds"]
        finally:
            chromium.terminate()
            chromium.wait()
            server.shutdown()
            server.server_close()
    return faults


def main() -> None:
    root, patterns = Path(sys.argv[1]).resolve(), sys.argv[2:]
    pages = chosen(root, patterns)
    faults_of = look(root, pages)
    for page, faults in faults_of.items():
        for fault in faults:
            print(f"{page}: {fault}")
    number = sum(map(len, faults_of.values()))
    print(f"{len(faults_of)} of {len(pages)} pages, {number} faults")
    sys.exit(bool(number) or not pages or len(faults_of) < len(pages))


if __name__ == "__main__":
    main()
