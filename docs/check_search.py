"""Check that the search of a built site finds the right page first, without a network.

`python docs/check_search.py build/site` opens the page of the search in Chromium from
the disk and prints the words whose first result is another page; the exit status is 1
if there are any.
"""

import html
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from check_layout import OPTIONS, browser

#: The page that a search for a word finds first.
FIRST = {
    "skew": "guide/skew.html",
    "rope": "schemes/rotary.html",
    "T5": "schemes/t5.html",
    "padding": "guide/long.html",
    "shaw": "schemes/shaw_attention.html",
    "alibi": "schemes/alibi.html",
}
#: Milliseconds of the page's own clock in which it searches.
PATIENCE = 10_000


def first_result(root: Path, word: str) -> str:
    """Return the address of the first result, without its anchor."""
    with tempfile.TemporaryDirectory() as home:
        page = subprocess.run(
            [
                browser(),
                *OPTIONS,
                f"--user-data-dir={home}",
                "--dump-dom",
                f"--virtual-time-budget={PATIENCE}",
                f"{(root / 'search.html').as_uri()}?q={quote(word)}",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    listed = page.partition('class="search">')[2]
    link = re.search(r'href="([^"#?]*)', listed)
    return html.unescape(link[1]) if link else "nothing"


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    found = {word: first_result(root, word) for word in FIRST}
    wrong = {word: page for word, page in found.items() if page != FIRST[word]}
    for word, page in wrong.items():
        print(f"{word}: finds {page} first, not {FIRST[word]}")
    print(f"{len(found)} words, {len(wrong)} faults")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
