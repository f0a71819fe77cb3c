"""What relpos found out about encodings and implementations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import kind_of, reject_foreign
from relpos._encodings.audit import EncodingAudit
from relpos.plot.lines import check_limits, colours_of
from relpos.plot.panel import (
    as_mapping,
    axes_of,
    colormap_from,
    heat_map,
    look_of,
    write_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from relpos._encodings.audit import Finding
    from relpos._opinion.compare import Comparison


def compare(
    comparison: Comparison,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Relative errors of a comparison: red what differs, dashed the limit of rounding.

    What is noise, nan, or cannot be told in its dtype is grey.

    Parameters
    ----------
    comparison : Comparison
        What `relpos.compare` returned.
    vmin, vmax : float, optional
        The ends of the axis of the errors, above 0: it is logarithmic.
    cmap : str or Colormap, optional
        Its first colour is that of what is the same, its last that of what differs.
    title : str, optional
        Above the axes.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    TypeError
        If `comparison` is something else, or an argument of another kind than it says.
    ValueError
        If the limits are not above 0 and in order, or there is no such `cmap`.

    See Also
    --------
    relpos.compare : Makes it.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> found = relpos.compare(np.sin, np.sin, np.ones(3))
    >>> ax = relpos.plot.compare(found, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['output']
    """
    if not hasattr(comparison, "rows"):
        got = kind_of(comparison)
        raise TypeError(f"comparison: got {got}; expected what relpos.compare returns")
    rows, least = comparison.rows, comparison.limit * 1e-4
    look = look_of(vmin, vmax, cmap, title)
    check_limits(look.limits, above=0.0)
    inks = dict(zip(("same", "differs"), colours_of(2, look), strict=True))
    colors = [inks.get(row.verdict, "lightgrey") for row in rows]
    ax = axes_of(ax)
    sizes = [max(least, row.relative) for row in rows]  # an exact result has a bar too
    ax.barh([row.name for row in rows], sizes, color=colors, log=True)
    ax.axvline(comparison.limit, color="black", linestyle="--")
    ax.set(xlabel="error relative to the largest entry")
    ax.set_xlim(*look.limits)
    ax.invert_yaxis()
    if look.title is not None:
        ax.set_title(look.title)
    return ax


def audit(
    audits: EncodingAudit | Mapping[str, EncodingAudit],
    *,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Table of the requirements that encodings meet (blue) and do not meet (red).

    Each cell has the verdict, the number measured and its limit. Where there was
    nothing to measure it is grey.

    Parameters
    ----------
    audits : EncodingAudit or mapping of str to EncodingAudit
        What ``relpos.audit_encoding`` returned, of one encoding or of several by name.
    cmap : str or Colormap, optional
        Its first colour is that of what is not met, its last that of what is.
    title : str, optional
        Above the table.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    TypeError
        If an argument is of another kind than it says.
    ValueError
        If there are no audits, or there is no such `cmap`.

    See Also
    --------
    relpos.audit_encoding : Makes them, and has the formulas.
    encoding_maps : The encodings themselves.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> found = relpos.audit_encoding(relpos.index_encoding, lengths=(8, 16), dim=4)
    >>> ax = relpos.plot.audit({"indices": found}, ax=Figure().subplots())
    >>> ax.texts[4].get_text().splitlines()  # whether its numbers are small
    ['no', '15 <= 1']
    """
    rows = _audits(audits)
    look = look_of(None, None, cmap, title)
    verdicts = np.array(
        [
            [np.nan if np.isnan(finding.value) else finding.met for finding in row]
            for row in rows.values()
        ],
        float,
    )
    if look.cmap is None:
        look = look._replace(cmap=colormap_from(colours_of(2, look)[::-1]))
    own = look._replace(limits=(0.0, 1.0))
    ax = heat_map("audit", verdicts, ax, own, bar=False, aspect="auto")
    write_numbers(ax, np.array([[_cell(f) for f in row] for row in rows.values()]))
    ax.set_xticks(range(len(EncodingAudit._fields)), EncodingAudit._fields)
    ax.set_yticks(range(len(rows)), [*rows])
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    for edge in np.arange(0.5, len(rows) - 1):
        ax.axhline(edge, color="white", linewidth=2)
    for edge in np.arange(0.5, len(EncodingAudit._fields) - 1):
        ax.axvline(edge, color="white", linewidth=2)
    if look.title is not None:
        ax.set_title(look.title)
    return ax


def _audits(given: object) -> dict[str, EncodingAudit]:
    """One audit without a name, or several by their names."""
    if isinstance(given, EncodingAudit):
        return {"": given}
    found = as_mapping("audits", given, "of names to audits, or one")
    for name, one in found.items():
        if not isinstance(one, EncodingAudit):
            reject_foreign(f"audits[{name!r}]", one)
            raise TypeError(
                f"audits[{name!r}]: got {kind_of(one)}; expected what "
                "relpos.audit_encoding returns"
            )
    return {str(name): one for name, one in found.items()}


def _cell(finding: Finding) -> str:
    """The verdict and what it rests on."""
    if np.isnan(finding.value):
        return "not\nmeasured"
    verdict = "yes" if finding.met else "no"
    return f"{verdict}\n{finding.value:.3g} {finding.relation} {finding.limit:.2g}"
