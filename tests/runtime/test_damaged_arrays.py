"""Files of arrays that are damaged, or made to damage: a DataError that names the file, never anything else."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from onnxq.errors import DataError
from onnxq.runtime.archive import open_arrays, read_arrays
from onnxq.runtime.feeds import InputInfo
from onnxq.runtime.images import open_images


def npy(array: np.ndarray, *, pickled: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=pickled)
    return stream.getvalue()


def with_header(header: str, version: tuple[int, int] = (1, 0), data: bytes = b"") -> bytes:
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", len(text)) + text + data


PLAIN = npy(np.arange(12, dtype=np.float32).reshape(3, 4))
HEADERS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "cannot read"),
    "no numbers": (b"no archive", "cannot read"),
    "version 9": (PLAIN[:6] + bytes([9, 0]) + PLAIN[8:], "version 9.0"),
    "an unclosed header": (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4"), "cannot read"),
    "a header of brackets": (with_header("(" * 9000), "cannot read"),
    "a header that calls": (with_header("__import__('os').getcwd()"), "cannot read"),
    "10^15 elements": (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,)}"), "byte"),
    "a length beyond 64 bits": (
        with_header(f"{{'descr': '<f4', 'fortran_order': True, 'shape': ({10**30}, 2)}}"),
        "byte",
    ),
    "a negative length": (
        with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4)}"),
        "the shape (-3, 4)",
    ),
    "a length that is a truth": (
        with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}", data=bytes(4)),
        "the shape (True,)",
    ),
    "Python objects": (npy(np.array([{}, []], dtype=object), pickled=True), "Python objects"),
    "half of it": (PLAIN[:-9], "should end at byte"),
}


@pytest.mark.parametrize(("content", "message"), HEADERS.values(), ids=HEADERS)
def test_a_broken_npy_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "given.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read '.*given\.npy'") as caught:
        open_arrays(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_is_named_however_it_is_packed(method: int, tmp_path: Path) -> None:
    path = tmp_path / "given.npz"
    values = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("image.npy", npy(values))
    whole = path.read_bytes()
    np.testing.assert_array_equal(read_arrays(path)["image"], values)
    refused = []
    for place in range(40, len(whole) - 200, len(whole) // 24):
        path.write_bytes(whole[:place] + bytes(16) + whole[place + 16 :])
        try:
            read_arrays(path)
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > 12
    assert all("given.npz" in text for text in refused)


def test_an_array_larger_than_the_memory_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "given.npz"
    np.savez_compressed(path, image=np.zeros((4, 1 << 20), np.float32))
    monkeypatch.setattr("onnxq.runtime.archive.available_memory", lambda: 1 << 20)
    stored = open_arrays(path)["image"]
    with pytest.raises(DataError, match=r"GiB have to be read at once"):
        stored[0]


def test_two_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "given.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("image.npy", PLAIN)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("image.npy", PLAIN)
    with pytest.raises(DataError, match="2 arrays called 'image'"):
        open_arrays(path)


@pytest.mark.parametrize("kind", ["png", "jpg", "bmp", "webp"])
def test_an_image_that_is_cut_off_or_damaged_is_named(kind: str, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / f"given.{kind}"
    values = np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8)
    image.fromarray(values).save(path)
    whole = path.read_bytes()
    refused = []
    inputs = [InputInfo("image", np.dtype(np.float32), (1, 3, 16, 16))]
    for place in range(0, len(whole), len(whole) // 8):
        for content in (whole[:place], whole[:place] + b"\xff\x00\xfe" + whole[place + 3 :]):
            path.write_bytes(content)
            try:
                for piece in open_images([path], "images", inputs, None).pieces():
                    piece.load()
            except DataError as error:
                refused.append(str(error))
    assert refused
    assert all(f"given.{kind}" in text for text in refused)
