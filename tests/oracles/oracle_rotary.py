"""Loops for rotary encodings and their gradients; see oracle.py."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import mpmath
import numpy as np


class Gradients(NamedTuple):
    x: Any
    angles: Any  # (..., L, h): of every angle, however they were given
    inv_freq: Any


def pairs(columns, interleaved):
    """Columns (a, b) of every pair of the first `columns`."""
    if interleaved:
        return [(c, c + 1) for c in range(0, columns, 2)]
    return [(c, columns // 2 + c) for c in range(columns // 2)]


def frequencies(columns, base=10000.0, inv_freq=None):
    """mpmath numbers, of as many digits as are in force."""
    if inv_freq is not None:
        return [mpmath.mpf(float(w)) for w in inv_freq]
    return [mpmath.power(base, mpmath.mpf(-c) / columns) for c in range(0, columns, 2)]


def angle_table(
    shape, positions=None, *, base=10000.0, inv_freq=None, angles=None, offset=0
):
    """The angle of every pair of every row as mpmath numbers; shape is (..., L, h)."""
    table = np.zeros(shape, object)
    omega = None if angles is not None else frequencies(2 * shape[-1], base, inv_freq)
    if angles is not None:
        given = np.broadcast_to(np.asarray(angles, np.float64), shape)
    else:
        rows = np.arange(shape[-2]) if positions is None else np.asarray(positions)
        given = np.broadcast_to(rows, shape[:-1])
    for index in np.ndindex(*shape):
        if angles is not None:
            table[index] = mpmath.mpf(float(given[index]))
        else:
            where = mpmath.mpf(float(given[index[:-1]])) + mpmath.mpf(float(offset))
            table[index] = where * omega[index[-1]]
    return table


def apply_rotary(
    x,
    positions=None,
    *,
    magnitude=None,
    interleaved=False,
    rotary_dim=None,
    inverse=False,
    digits=40,
    **angle,
):
    """Each result as the float64 next to the exact one."""
    x = np.asarray(x)
    columns = x.shape[-1] if rotary_dim is None else rotary_dim
    shape = (*x.shape[:-1], columns // 2)
    scale = np.broadcast_to(1.0 if magnitude is None else magnitude, shape)
    result = x.astype(np.float64)
    with mpmath.workdps(digits):
        table = angle_table(shape, positions, **angle)
        for index in np.ndindex(*shape):
            *row, c = index
            a, b = pairs(columns, interleaved)[c]
            x_a, x_b = (mpmath.mpf(float(x[(*row, column)])) for column in (a, b))
            theta = -table[index] if inverse else table[index]
            m = mpmath.mpf(float(scale[index]))
            cosine, sine = mpmath.cos(theta), mpmath.sin(theta)
            result[(*row, a)] = float(m * (x_a * cosine - x_b * sine))
            result[(*row, b)] = float(m * (x_b * cosine + x_a * sine))
    return result


def apply_rotary_backward(
    grad_out,
    x,
    positions=None,
    *,
    magnitude=None,
    interleaved=False,
    rotary_dim=None,
    inverse=False,
    **angle,
):
    x, grad_out = np.asarray(x, np.float64), np.asarray(grad_out, np.float64)
    columns = x.shape[-1] if rotary_dim is None else rotary_dim
    shape = (*x.shape[:-1], columns // 2)
    scale = np.broadcast_to(1.0 if magnitude is None else magnitude, shape)
    table = angle_table(shape, positions, **angle)
    rows = np.arange(shape[-2]) if positions is None else np.asarray(positions)
    where = np.broadcast_to(rows + angle.get("offset", 0), shape[:-1])
    grad_x, grad_angles = grad_out.copy(), np.zeros(shape)
    grad_frequencies = np.zeros(shape[-1])
    sign = -1.0 if inverse else 1.0
    for index in np.ndindex(*shape):
        *row, c = index
        a, b = ((*row, column) for column in pairs(columns, interleaved)[c])
        theta, m = sign * float(table[index]), scale[index]
        cosine, sine = math.cos(theta), math.sin(theta)
        grad_x[a] = m * (grad_out[a] * cosine + grad_out[b] * sine)
        grad_x[b] = m * (grad_out[b] * cosine - grad_out[a] * sine)
        turned_a, turned_b = -x[a] * sine - x[b] * cosine, x[a] * cosine - x[b] * sine
        slope = sign * m * (grad_out[a] * turned_a + grad_out[b] * turned_b)
        grad_angles[index] = slope
        grad_frequencies[c] += slope * where[tuple(row)]
    return Gradients(grad_x, grad_angles, grad_frequencies)


def xpos_magnitude(positions, dim, *, scale_base=512.0, inverse=False):
    positions = np.arange(positions) if np.ndim(positions) == 0 else positions
    positions = np.asarray(positions, np.float64)
    result = np.zeros((*positions.shape, dim // 2))
    for *row, c in np.ndindex(*result.shape):
        zeta = (2 * c + 0.4 * dim) / (1.4 * dim)
        power = positions[tuple(row)] / scale_base
        result[(*row, c)] = zeta ** (-power if inverse else power)
    return result


def mrope_angles(positions, inv_freq, sections, *, interleaved=False):
    """Return angles; the axis of each pair is counted pair by pair."""
    positions = np.asarray(positions, np.float64)
    result = np.zeros((*positions.shape[1:], len(inv_freq)))
    axis, left = 0, sections[0]
    for c, frequency in enumerate(inv_freq):
        if interleaved:
            chosen = c % 3
            if c >= 3 * sections[chosen]:  # beyond its section: time
                chosen = 0
        else:
            while left == 0:
                axis, left = axis + 1, sections[axis + 1]
            chosen, left = axis % 3, left - 1
        for row in np.ndindex(*result.shape[:-1]):
            result[(*row, c)] = positions[(chosen, *row)] * frequency
    return result


def axial_angles(coordinates, inv_freq):
    coordinates = np.asarray(coordinates, np.float64)
    *rows, axes = coordinates.shape
    result = np.zeros((*rows, axes * len(inv_freq)))
    for *row, column in np.ndindex(*result.shape):
        axis, c = divmod(column, len(inv_freq))
        result[(*row, column)] = coordinates[(*row, axis)] * inv_freq[c]
    return result
