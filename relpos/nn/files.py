"""Weights from files, without unpickling anything."""

from __future__ import annotations

import codecs
import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from relpos._checks import Array, kind_of

try:
    import safetensors
except ImportError:  # it is an extra
    safetensors = None  # type: ignore[assignment]

__all__ = ["load_file"]

# zipfile decodes the names in .npz files by this codec. Its module is imported here, so
# that no import happens in the middle of a call.
codecs.lookup("cp437")

#: safetensors' names of number types, and NumPy's. BF16 is the upper half of a float32.
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}


def load_file(path: str | os.PathLike[str], *, prefix: str = "") -> dict[str, Array]:
    """Read a state_dict from a ``.npz`` or ``.safetensors`` file.

    Parameters
    ----------
    path : str or path
        ``.npz`` as `numpy.savez` writes it; ``.safetensors`` needs the package
        `safetensors` (the extra ``files``).
    prefix : str, optional
        Return only names that start with it, and without it: one layer of a model.

    Returns
    -------
    dict of str to ndarray
        For `Module.load_state_dict`. bfloat16 comes as float32.

    Raises
    ------
    TypeError
        `path` is no path, or `prefix` no str.
    ValueError
        The file is of another kind, broken or encrypted, has something else than arrays
        or arrays of Python objects (whose pickles can run any code), or no name has the
        prefix.
    ImportError
        `safetensors` is not installed.
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from relpos import nn
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> layer = nn.Linear(3, 2, rng=0)
    >>> np.savez(path, **{f"decoder.{k}": v for k, v in layer.state_dict().items()})
    >>> weights = nn.load_file(path, prefix="decoder.")
    >>> list(weights)
    ['weight', 'bias']
    >>> nn.Linear(3, 2).load_state_dict(weights)
    LoadResult(missing_keys=[], unexpected_keys=[])
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path: got {kind_of(path)}; expected a str or a path")
    if not isinstance(prefix, str):
        raise TypeError(f"prefix: got {kind_of(prefix)}; expected a str")
    file = Path(path)
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors}
    if file.suffix not in readers:
        raise ValueError(
            f"path: {file.name!r} is not .npz nor .safetensors (files of torch.save"
            " are pickles, which can run any code: save the weights with numpy.savez or"
            " safetensors instead)"
        )
    arrays = readers[file.suffix](file)
    state = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    if prefix and not state:
        some = ", ".join(sorted(arrays)[:5])
        raise ValueError(f"prefix: no name starts with {prefix!r}; there are {some}")
    return state


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        stream = path.open("rb")
    except ValueError as error:  # such as a null character
        raise _unreadable(path, error) from None
    with stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                arrays: dict[str, Array] = {}
                for info in archive.infolist():
                    name = info.filename.removesuffix(".npy")
                    if name in arrays:
                        raise ValueError(f"it holds {name!r} twice")
                    arrays[name] = _read_npy(archive, info)
                return arrays
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - zipfile and its codecs raise many
            raise _unreadable(path, error) from None


def _read_npy(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Read a member, which must be an array and as large as it says."""
    if not info.filename.endswith(".npy"):
        raise ValueError(f"it holds {info.filename!r}, which is no array")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(member)
        # A header of a broken file may ask for any size, which NumPy would allocate. Of
        # objects the size is not known; `read_array` refuses them.
        size = math.prod(shape) * dtype.itemsize
        left = info.file_size - member.tell()
        if size > left and not dtype.hasobject:
            raise ValueError(
                f"{info.filename!r} has {left} bytes for an array of {size}"
            )
    with archive.open(info) as member:
        array: Array = np.lib.format.read_array(member, allow_pickle=False)
    return array


def _unreadable(path: Path, error: Exception) -> ValueError:
    reason = str(error) or type(error).__name__
    return ValueError(f"path: {path.name!r} cannot be read: {reason}")


def _read_safetensors(path: Path) -> dict[str, Array]:
    if safetensors is None:
        raise ImportError(
            "reading .safetensors files needs the package safetensors; "
            "run `python -m pip install safetensors`"
        )
    try:
        deserialize: Any = safetensors.deserialize  # untyped there
        content = path.read_bytes()
        entries = deserialize(content)
        _check_names(content)
    except (ValueError, safetensors.SafetensorError) as error:
        raise _unreadable(path, error) from None
    return {name: _from_entry(path, name, **entry) for name, entry in entries}


def _check_names(content: bytes) -> None:
    """Raise for a name that comes twice, of which the package returns the last alone.

    The header is JSON, behind its length. `safetensors` has checked both.
    """
    length = int.from_bytes(content[:8], "little")
    json.loads(content[8 : 8 + length], object_pairs_hook=_without_repeats)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dictionary."""
    members: dict[str, Any] = {}
    for name, member in pairs:
        if name in members:
            raise ValueError(f"it holds {name!r} twice")
        members[name] = member
    return members


def _from_entry(
    path: Path, name: str, dtype: str, shape: list[int], data: bytes
) -> Array:
    if dtype not in _DTYPES:
        raise ValueError(
            f"path: {path.name!r} has {name} as {dtype}; expected one of "
            f"{', '.join(_DTYPES)}"
        )
    array: Array = np.frombuffer(data, _DTYPES[dtype]).reshape(shape)
    if dtype == "BF16":
        array = np.asarray(array.astype(np.uint32) << 16).view(np.float32)
    return array
