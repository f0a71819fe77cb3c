"""Check that a reader finds answers within two clicks of a built site's first page.

`python docs/check_clicks.py build/site` prints the pages on the way to each answer. The
exit status is 1 if one is farther away, or is not on its page. The index and the search
do not count, and neither does what a page has in a fold.
"""

import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

from check_links import Page

CLICKS = 2
#: Questions: the page that answers, and what is on it.
ANSWERS = {
    "the skew, explained with a picture": (
        "guide/skew.html",
        ["<figure", "pads the array", "The skew of five notes."],
    ),
    "the call for a T5 decoder": (
        "models.html",
        ["T5, Flan-T5, mT5: decoder", "recipes.t5", "bidirectional=False"],
    ),
    "why a Shaw layer of one's own is wrong": (
        "check-your-implementation.html",
        ["shaw_attention", "table_reversed", "Causes of a symptom"],
    ),
    "the memory of a 10-minute recording": (
        "guide/long.html",
        ["7,500", "For ten minutes", "relpos needs about 6 MB"],
    ),
    "the source of relpos.reference.shaw_attention": (
        "api/relpos.reference.shaw_attention.html",
        ['<span class="nf">shaw_attention</span>', "softmax"],
    ),
}
FOLD = re.compile("<details.*?</details>", re.DOTALL)
NO_WAYS = {"genindex.html", "search.html", "py-modindex.html"}


def ways(root: Path) -> dict[str, list[str]]:
    """Return the pages to click on, for each page that the first one leads to."""
    shortest: dict[str, list[str]] = {"index.html": []}
    reached = ["index.html"]
    for name in reached:  # grows while it is read: the nearest pages come first
        path = root / name
        for link in Page(path.read_text("utf-8")).links:
            parts = urlsplit(link)
            target = Path(path.parent, parts.path).resolve()
            if parts.scheme or target.suffix != ".html" or not target.is_file():
                continue
            page = target.relative_to(root).as_posix()
            if page not in shortest and page not in NO_WAYS:
                shortest[page] = [*shortest[name], page]
                reached.append(page)
    return shortest


def answer(root: Path, page: str, way: list[str] | None, words: list[str]) -> list[str]:
    """Return what is wrong with the way to an answer and with its page."""
    if way is None:
        return ["not reached"]
    text = FOLD.sub("", (root / page).read_text("utf-8"))
    faults = [f"lacks {word!r}" for word in words if word not in text]
    if len(way) > CLICKS:
        faults.insert(0, f"{len(way)} clicks")
    return faults


def main() -> None:
    root, wrong = Path(sys.argv[1]).resolve(), 0
    ways_to = ways(root)
    for question, (page, words) in ANSWERS.items():
        way = ways_to.get(page)
        faults = answer(root, page, way, words)
        wrong += bool(faults)
        print("FAULT" if faults else "ok   ", question, *(way or []), *faults)
    print(f"{len(ANSWERS)} questions, {wrong} faults")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
