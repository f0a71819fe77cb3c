"""MathJax from Debian's libjs-mathjax in the site: formulas need no network."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ConfigError

SOURCE = Path("/usr/share/javascript/mathjax")
#: What TeX in, HTML out needs of version 2.7.
PARTS = (
    "MathJax.js",
    *("extensions/tex2jax.js", "extensions/MathEvents.js", "extensions/MathZoom.js"),
    *("extensions/MathMenu.js", "extensions/TeX", "extensions/HTML-CSS"),
    *("jax/element", "jax/input/TeX", "jax/output/CommonHTML"),
    "fonts/HTML-CSS/TeX/woff",
)
SETTINGS = {
    "extensions": ["tex2jax.js", "TeX/AMSmath.js", "TeX/AMSsymbols.js"],
    "jax": ["input/TeX", "output/CommonHTML"],
    "showMathMenu": False,
    "messageStyle": "none",
    "CommonHTML": {"linebreaks": {"automatic": False}},
}


def copy_mathjax(app: Sphinx) -> None:
    """Copies what is needed beside the site's other scripts."""
    if not (SOURCE / "MathJax.js").exists():
        raise ConfigError(
            f"formulas need MathJax in {SOURCE}: `apt-get install libjs-mathjax`"
        )
    if app.builder.format != "html":
        return
    for part in PARTS:
        source, target = SOURCE / part, Path(app.outdir, "_static", "mathjax", part)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def configure(app: Sphinx, config: Any) -> None:
    """Version 2 is set up by the page that loads it."""
    config.mathjax_path = "mathjax/MathJax.js"
    config.mathjax2_config = SETTINGS


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", configure, priority=100)  # before nbsphinx adds to it
    app.connect("builder-inited", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
