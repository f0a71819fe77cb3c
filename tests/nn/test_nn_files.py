"""nn.load_file: whatever a file holds, arrays come back or an error that is named."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

from relpos import nn

#: Mutations of each file.
ROUNDS = 400


def header(text):
    """A header of .npy for a shape and a dtype given as they are written there."""
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def npy(shape, descr="<f4", data=b"1234"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    return header(text.encode()) + data


def npz(name="w.npy", data=None, method=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr(name, npy("(1,)") if data is None else data)
    return stream.getvalue()


def changed(content, *changes):
    """Bytes at offsets in both headers of the only member: local and central."""
    content = bytearray(content)
    central = content.find(b"PK\x01\x02")
    for local, other, value in changes:
        content[local] = content[central + other] = value
    return bytes(content)


BROKEN = {
    "encrypted": changed(npz(), (6, 8, 1)),
    "an unknown compression": changed(npz(), (8, 10, 99)),
    "a compression that is another": changed(npz(), (8, 10, 8)),
    "a later version": changed(npz(), (4, 6, 99)),
    "a shape beyond int64": npz(data=npy(f"({10**30},)")),
    "a shape beyond memory": npz(data=npy(f"({2**44},)")),
    "a shape below zero": npz(data=npy("(-1,)")),
    "a shape of words": npz(data=npy("('a',)")),
    "too few bytes": npz(data=npy("(2,)")),
    "no number type": npz(data=npy("(1,)", "<q9")),
    "a deep header": npz(data=header(b"(" * 3000)),
    "no array": npz("w", b"abc"),
    "a folder": npz("w/", b""),
    "an array without its name": npz("w"),
    "an empty array file": npz(data=b""),
    "a text": npz(data=b"abc"),
    "cut": npz()[:-30],
    "nothing": b"",
    "the beginning of an archive": b"PK\x03\x04 nothing more",
    "no beginning of anything": b"\xff" * 64,
    "an array, no archive": npy("(3,)", data=bytes(12)),
}


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_a_value_error_with_its_name(name, kind, tmp_path):
    if kind == "safetensors":
        pytest.importorskip("safetensors")
    path = tmp_path / f"weights.{kind}"
    path.write_bytes(BROKEN[name])
    with pytest.raises(
        ValueError, match=rf"^path: 'weights\.{kind}' cannot be read: ."
    ):
        nn.load_file(path)


def a_file(kind):
    """A small file of a kind, as bytes."""
    rng, stream = np.random.default_rng(0), io.BytesIO()
    state = {"a.weight": rng.standard_normal((3, 4)), "b": np.arange(5, dtype="f4")}
    if kind == "safetensors":
        save = pytest.importorskip("safetensors.numpy").save
        return save(state)
    if kind == "npz":
        np.savez(stream, **state)
        return stream.getvalue()
    if kind == "compressed":
        np.savez_compressed(stream, **state)
        return stream.getvalue()
    method = {"bz2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}[kind]
    pytest.importorskip(kind)
    return npz(data=npy("(3,)", data=bytes(12)), method=method)


def mutated(content, rng):
    """The bytes with a few changed, some left out, or a part of them repeated."""
    content = bytearray(content)
    at = rng.integers(len(content), size=rng.integers(1, 4))
    kind = rng.integers(4)
    if kind == 0:
        return bytes(content[: at[0]])
    if kind == 1:
        first, last = sorted((at[0], at[-1]))
        return bytes(content[:last] + content[first:])
    for place in at:
        content[place] = rng.integers(256) if kind == 2 else content[place] ^ 1
    return bytes(content)


@pytest.mark.filterwarnings("ignore:Reading `.npy`")  # of a header of Python 2
@pytest.mark.parametrize("kind", ["npz", "compressed", "bz2", "lzma", "safetensors"])
def test_mutated_files(kind, tmp_path):
    content, rng = a_file(kind), np.random.default_rng(1)
    suffix = "safetensors" if kind == "safetensors" else "npz"
    path = tmp_path / f"weights.{suffix}"
    refused = 0
    for _ in range(ROUNDS):
        path.write_bytes(mutated(content, rng))
        try:
            found = nn.load_file(path)
        except ValueError as error:
            refused += 1
            assert str(error).startswith(f"path: 'weights.{suffix}' ")
        else:
            assert all(type(array) is np.ndarray for array in found.values())
            assert all(array.dtype.kind != "O" for array in found.values())
    assert refused > ROUNDS / 4


def test_a_file_that_is_not_there_or_a_folder(tmp_path):
    for kind in ("npz", "safetensors"):
        if kind == "safetensors":
            pytest.importorskip("safetensors")
        with pytest.raises(ValueError, match=r"^path: .* cannot be read"):
            nn.load_file(f"nul\0.{kind}")
        with pytest.raises(FileNotFoundError, match=rf"absent\.{kind}"):
            nn.load_file(tmp_path / f"absent.{kind}")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(OSError, match=r"folder\.npz"):
        nn.load_file(tmp_path / "folder.npz")
