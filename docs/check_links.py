"""Check that links inside a built site lead somewhere and need no other host.

`python docs/check_links.py build/site` prints what is wrong; the exit status is 1 if
anything is.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser loads by itself; other links are the reader's to follow.
LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
}
#: Link elements that load nothing.
NAMED_ONLY = {"index", "search", "next", "prev", "author", "canonical", "copyright"}


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given.get("id", ""), given.get("name", "")}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        address = given.get(LOADED.get(tag, ""))
        if address and given.get("rel") not in NAMED_ONLY:
            self.loaded.append(address)
            self.links.append(address)


def faults(root: Path) -> list[str]:
    """One line for each link that leads nowhere, and each thing of another host."""
    files = [p for p in sorted(root.rglob("*.html")) if "_static" not in p.parts]
    pages = {path: Page(path.read_text("utf-8")) for path in files}
    lines = []
    for path, page in pages.items():
        where = path.relative_to(root)
        for address in page.loaded:
            parts = urlsplit(address)
            if parts.scheme != "data" and (parts.scheme or parts.netloc):
                lines.append(f"{where}: loads {address}")
        for address in dict.fromkeys(page.links):
            parts = urlsplit(address)
            if not parts.scheme and not parts.netloc and not leads(path, parts, pages):
                lines.append(f"{where}: {address} leads nowhere")
    return lines


def leads(path, parts, pages) -> bool:
    """Return True if the file exists and, for a page, has the anchor."""
    target = path
    if parts.path:
        target = Path(path.parent, unquote(parts.path)).resolve()
    if target.is_dir():
        target /= "index.html"
    if target not in pages:
        return target.is_file()
    return unquote(parts.fragment) in pages[target].anchors


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    wrong = faults(root)
    print(*wrong, sep="\n" if wrong else "")
    pages = len([*root.rglob("*.html")])
    print(f"{pages} pages, {len(wrong)} faults")
    sys.exit(bool(wrong) or not pages)


if __name__ == "__main__":
    main()
