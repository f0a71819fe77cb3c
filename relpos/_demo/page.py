"""A report as one HTML file, with its pictures: ``python -m relpos demo --open``."""

from __future__ import annotations

import re
import sys
import webbrowser
from base64 import b64encode
from html import escape
from pathlib import Path

from relpos._demo.pictures import FOLDER
from relpos._demo.report import Report

__all__ = ["page", "show"]

STYLE = """
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font-family: sans-serif;
       color: #1a1a1a; background: #fff; }
pre { overflow-x: auto; background: #f5f5f5; padding: 1rem; line-height: 1.35; }
img { max-width: 100%; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
.c31 { color: #b00020; } .c32 { color: #00692c; } .c33 { color: #8a5a00; }
"""
SEQUENCE = re.compile(r"\033\[(?:(?P<front>3\d)|48;5;(?P<back>\d+))m(.*?)\033\[0m")


def page(report: Report) -> str:
    """The report in HTML: what was printed, step by step, then the pictures."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8"><title>relpos demo</title>',
        f"<style>{STYLE}</style>",
        f"<h1>relpos {escape(str(report.facts.get('version', '')))}</h1>",
        f"<p>{report.summary()}</p>",
    ]
    for first, *others in report.lines:
        parts += [f"<h2>{escape(first.strip())}</h2>", "<pre>"]
        parts += [coloured(line.removeprefix("   ")) for line in others]
        parts.append("</pre>")
    for name, png in report.pictures.items():
        source = b64encode(png).decode()
        parts.append(f'<p><img alt="{name}" src="data:image/png;base64,{source}"></p>')
    return "\n".join([*parts, "</html>", ""])


def coloured(line: str) -> str:
    """A printed line, the colours of the terminal as those of the page."""

    def span(found: re.Match[str]) -> str:
        text = found[3]
        if found["front"]:
            return f'<b class="c{found["front"]}">{text}</b>'
        return (
            f'<span style="background:{web_colour(int(found["back"]))}">{text}</span>'
        )

    return SEQUENCE.sub(span, escape(line, quote=False))


def web_colour(code: int) -> str:
    """A colour of a terminal's 256, from 16 on, as #rrggbb."""
    if code >= 232:  # grey
        return "#" + 3 * f"{8 + 10 * (code - 232):02x}"
    red, rest = divmod(code - 16, 36)
    levels = (0, 95, 135, 175, 215, 255)
    return "#" + "".join(f"{levels[at]:02x}" for at in (red, *divmod(rest, 6)))


def show(report: Report) -> None:
    """Write the page into FOLDER and open it in a browser, if there is one."""
    folder = Path(FOLDER)
    folder.mkdir(exist_ok=True)
    path = folder / "report.html"
    path.write_text(page(report), encoding="utf-8")
    opened = webbrowser.open(path.resolve().as_uri())
    said = path if opened else f"No browser was found: open {path} in one."
    print(said, file=sys.stderr)  # standard output may be JSON
