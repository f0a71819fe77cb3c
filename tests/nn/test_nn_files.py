"""nn.load_file: whatever a file holds, arrays come back or an error that is named."""

from __future__ import annotations

import io
import json
import re
import struct
import warnings
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


def safetensors_file(header, data=bytes(16), length=None):
    """A file of a header, in bytes or as the names of entries, and its data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(4,), begin=0, end=16):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


W = {"w": entry()}
TWICE = b'{"w": %s, "w": %s}' % ((json.dumps(entry()).encode(),) * 2)
SHAPED = {"w": entry(shape=(5,))}
#: Files whose beginning is right, and a word of what is wrong in each.
MALFORMED_SAFETENSORS = {
    "a long header": (safetensors_file(W, length=10**6), "(?i)length|large"),
    "a header beyond memory": (safetensors_file(W, length=2**63), "(?i)length|large"),
    "a header that is cut": (safetensors_file(W)[:40], "(?i)header"),
    "no JSON": (safetensors_file(b"{'w': 1}"), "(?i)header"),
    "no UTF-8": (safetensors_file(b'{"\xff": 1}'), "(?i)header"),
    "a list": (safetensors_file([entry()]), "(?i)header"),
    "a deep header": (safetensors_file(b"[" * 100_000), "(?i)header"),
    "no dtype": (safetensors_file({"w": {"shape": [4]}}), "(?i)header"),
    "an unknown dtype": (safetensors_file({"w": entry("F33")}), "(?i)header|F33"),
    "a dtype of 8 bits": (safetensors_file({"w": entry("F8_E4M3", (16,))}), "F8"),
    "a shape of another size": (safetensors_file(SHAPED), "(?i)shape|invalid"),
    "a shape beyond int64": (
        safetensors_file({"w": entry(shape=(2**62, 2**62))}), "(?i)overflow",
    ),
    "a shape below zero": (safetensors_file({"w": entry(shape=(-4,))}), "(?i)header"),
    "data beyond the end": (
        safetensors_file({"w": entry(shape=(8,), end=32)}), "(?i)covered|incomplete",
    ),
    "data that ends before it begins": (
        safetensors_file({"w": entry(begin=16, end=0)}), "(?i)offset",
    ),
    "data of two names": (
        safetensors_file({"a": entry(), "b": entry(shape=(2,), begin=8)}), "(?i)offset",
    ),
    "data of no name": (
        safetensors_file(
            {"a": entry(shape=(2,), end=8), "b": entry(shape=(1,), begin=12)}
        ), "(?i)offset",
    ),
    "data behind the last": (safetensors_file(W, bytes(20)), "(?i)covered|incomplete"),
    "a name twice": (safetensors_file(TWICE), "holds 'w' twice"),
}  # fmt: skip


def two_members(first, second, **others):
    """An archive of two members, whatever their names."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that comes twice
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr(first, npy("(1,)"))
            archive.writestr(second, others.get("data", npy("(1,)")))
    return stream.getvalue()


#: Broken files of one kind alone, and a word of what is wrong.
MALFORMED_NPZ = {
    "a name twice": (two_members("w.npy", "w.npy"), "holds 'w' twice"),
    "a right array before one that is cut": (
        two_members("a.npy", "b.npy", data=npy("(2,)")), "'b.npy' has 4 bytes",
    ),
    "a right array before a text": (
        two_members("a.npy", "notes.txt", data=b"abc"),
        "'notes.txt', which is no array",
    ),
    "objects": (npz(data=npy("(1,)", "|O")), "(?i)object"),
    "bytes that are not those of its checksum": (
        npz().replace(b"1234", b"1235", 1), "(?i)crc",
    ),
    "too few bytes": (BROKEN["too few bytes"], "has 4 bytes for an array of 8"),
    "a shape beyond memory": (BROKEN["a shape beyond memory"], "for an array of"),
    "encrypted": (BROKEN["encrypted"], "(?i)encrypted|password"),
    "an unknown compression": (BROKEN["an unknown compression"], "(?i)compression"),
    "no archive": (BROKEN["no beginning of anything"], "(?i)zip"),
}  # fmt: skip
MALFORMED = [
    (kind, content, wrong, suffix)
    for suffix, kinds in (
        ("npz", MALFORMED_NPZ),
        ("safetensors", MALFORMED_SAFETENSORS),
    )
    for kind, (content, wrong) in kinds.items()
]


@pytest.mark.parametrize(
    ("content", "wrong", "suffix"),
    [row[1:] for row in MALFORMED],
    ids=[f"{row[3]}-{row[0]}" for row in MALFORMED],
)
def test_an_error_says_what_is_wrong_and_nothing_has_changed(
    content, wrong, suffix, tmp_path
):
    if suffix == "safetensors":
        pytest.importorskip("safetensors")
    path = tmp_path / f"weights.{suffix}"
    path.write_bytes(content)
    layer = nn.Linear(1, 1, rng=0)
    before = {name: array.copy() for name, array in layer.state_dict().items()}
    with pytest.raises(ValueError, match=rf"^path: 'weights\.{suffix}' ") as caught:
        layer.load_state_dict(nn.load_file(path))
    reason = str(caught.value).partition(f"'weights.{suffix}' ")[2]
    assert re.search(wrong, reason), reason
    for name, array in layer.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_bytes() == content


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
