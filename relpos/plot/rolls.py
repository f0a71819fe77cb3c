"""Music as bars over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import as_integers
from relpos.plot.lines import check_limits, colours_of
from relpos.plot.panel import Array, axes_of, look_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

_STEPS = 4  # of time in a quarter
_GAP = 0.15  # of a step, so that a note that is struck again is seen
_PITCHES = 128


def piano_roll(
    notes: npt.ArrayLike,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Music as bars: time to the right, pitch upwards, a colour for each voice.

    Parameters
    ----------
    notes : array_like of int, (n, 4)
        A row for each note: voice, pitch as in MIDI, start and length in sixteenths,
        as of `relpos.data.chorales`.
    vmin, vmax : float, optional
        The lowest and the highest pitch shown.
    cmap : str or Colormap, optional
        Colours of the voices, from the first to the last.
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
    ValueError
        If `notes` have another shape, or a voice, pitch, start or length that is none.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.data.chorales : Notes to draw.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> (first, *_) = relpos.data.chorales()
    >>> ax = relpos.plot.piano_roll(first.notes, ax=Figure().subplots())
    >>> len(ax.patches), len(ax.get_legend().get_texts())
    (223, 4)
    """
    rows = _as_notes(notes)
    look = look_of(vmin, vmax, cmap, title)
    check_limits(look.limits)
    ax = axes_of(ax)
    voices = np.unique(rows[:, 0])
    for voice, colour in zip(voices, colours_of(len(voices), look), strict=True):
        _, pitches, starts, lengths = rows[rows[:, 0] == voice].T
        ax.barh(
            pitches,
            (lengths - _GAP) / _STEPS,
            height=0.85,
            left=starts / _STEPS,
            color=colour,
            label=f"voice {voice}",
        )
    low, high = look.limits
    bottom = rows[:, 1].min() - 1 if low is None else low
    ax.set_ylim(bottom, rows[:, 1].max() + 1 if high is None else high)
    inside = [c for c in range(0, _PITCHES, 12) if c >= ax.get_ylim()[0]]
    names = [f"C{c // 12 - 1}" for c in inside if c <= ax.get_ylim()[1]]
    ax.set_yticks(inside[: len(names)], names)
    ax.set(xlabel="time in quarters", ylabel="pitch")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    if look.title is not None:
        ax.set_title(look.title)
    return ax


def _as_notes(notes: npt.ArrayLike) -> Array:
    """Rows of voice, pitch, start and length, each of them possible."""
    rows = as_integers("notes", notes)
    if rows.ndim != 2 or rows.shape[1] != 4 or not len(rows):
        raise ValueError(
            f"notes: got shape {rows.shape}; expected (n, 4), a row of voice, pitch, "
            "start and length for each of n > 0 notes"
        )
    voice, pitch, start, length = rows.T
    least = {"voice": (voice, 0), "pitch": (pitch, 0), "start": (start, 0)}
    for name, (column, bound) in {**least, "length": (length, 1)}.items():
        if column.min() < bound:
            got = f"a {name} of {column.min()}"
            raise ValueError(f"notes: got {got}; expected at least {bound}")
    if pitch.max() >= _PITCHES:
        got = f"a pitch of {pitch.max()}"
        raise ValueError(f"notes: got {got}; expected less than {_PITCHES}")
    return rows
