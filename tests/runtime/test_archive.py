"""Arrays in .npy and .npz files: the right rows, without the rest of the file in memory."""

import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from onnxq.errors import DataError
from onnxq.runtime.archive import open_arrays
from onnxq.runtime.dataset import InputInfo, open_dataset

TOKENS = InputInfo("tokens", np.dtype(np.int64), ("batch", "length"))
MASK = InputInfo("mask", np.dtype(np.int64), ("batch", "length"))
IMAGE = InputInfo("image", np.dtype(np.float32), ("batch", 3, 5))

SAVERS = [np.savez, np.savez_compressed]

ARRAYS = {
    "rows": np.arange(60, dtype=np.float32).reshape(4, 3, 5),
    "fortran": np.asfortranarray(np.arange(60, dtype=np.float64).reshape(4, 3, 5)),
    "scalar": np.array(7, np.int16),
    "line": np.arange(9, dtype=np.uint8),
    "nothing": np.ones((0, 3), np.float32),
    "empty_fortran": np.asfortranarray(np.ones((3, 0), np.float32)),
    "text": np.array(["a", "longer", ""]),
    "big_endian": np.arange(6, dtype=">i4").reshape(3, 2),
}


@pytest.mark.parametrize("save", SAVERS)
def test_every_array_comes_back_whole_and_by_rows(tmp_path, save):
    path = tmp_path / "arrays.npz"
    save(path, **ARRAYS)
    found = open_arrays(path)
    assert found.keys() == ARRAYS.keys()
    for name, wanted in ARRAYS.items():
        stored = found[name]
        assert (stored.shape, stored.dtype) == (wanted.shape, wanted.dtype)
        assert np.array_equal(np.asarray(stored), wanted), name
        if wanted.ndim:
            assert np.array_equal(stored[1:3], wanted[1:3]), name
            assert np.array_equal(stored[0:2], wanted[0:2]), name  # backwards, and past the end
            assert np.array_equal(stored[2:99], wanted[2:99]), name
            for row in range(len(wanted)):
                assert np.array_equal(stored[row], wanted[row]), name


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_npy_file_is_read_by_rows(tmp_path, order):
    wanted = np.asarray(np.random.default_rng(0).normal(size=(6, 2, 3)), order=order)
    np.save(tmp_path / "one.npy", wanted)
    stored = open_arrays(tmp_path / "one.npy")["one"]
    assert np.array_equal(np.stack([stored[row] for row in range(6)]), wanted)


def test_rows_that_are_not_there_are_not_invented(tmp_path):
    np.savez(tmp_path / "a.npz", rows=ARRAYS["rows"])
    stored = open_arrays(tmp_path / "a.npz")["rows"]
    for row in (4, -1):
        with pytest.raises(IndexError):
            stored[row]


@pytest.mark.parametrize("save", SAVERS)
def test_feeds_from_a_file_are_aligned_and_contiguous(tmp_path, save):
    save(tmp_path / "odd_name.npz", image=ARRAYS["rows"])
    for feed in open_dataset(tmp_path / "odd_name.npz", [IMAGE]):
        assert feed["image"].flags.aligned
        assert feed["image"].flags.c_contiguous


def test_a_mapped_array_at_an_odd_address_is_fed_aligned(tmp_path):
    path = tmp_path / "values.bin"
    path.write_bytes(b"x" + ARRAYS["rows"].tobytes())
    mapped = np.memmap(path, np.float32, "r", offset=1, shape=(4, 3, 5))
    assert not mapped.flags.aligned
    feeds = list(open_dataset(mapped, [IMAGE]))
    assert all(feed["image"].flags.aligned for feed in feeds)
    assert np.array_equal(np.concatenate([feed["image"] for feed in feeds]), ARRAYS["rows"])


MEASURE = """
import sys
import numpy as np
from onnxq.runtime.dataset import InputInfo, open_dataset

def resident(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))

path, kind = sys.argv[1:]
source = np.load(path, mmap_mode="r") if kind == "mapped" else path
# Pages of a mapping count as the process's own until the system wants them back; copies would be anonymous memory.
key = "RssAnon" if kind == "mapped" else "VmHWM"
info = InputInfo("x", np.dtype(np.float32), (1, 1024, 256))
next(iter(open_dataset(source, [info])))
before = highest = resident(key)
total = 0.0
for feed in open_dataset(source, [info]):
    total += float(feed["x"][0, 0, 0])
    highest = max(highest, resident(key))
print(total, (highest - before) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
@pytest.mark.parametrize("kind", ["savez", "savez_compressed", "npy", "mapped"])
def test_a_large_file_costs_the_memory_of_one_sample(tmp_path, kind):
    data = np.zeros((120, 1024, 256), np.float32)  # 1 MB each
    data[:, 0, 0] = np.arange(120)
    if kind.startswith("savez"):
        path = tmp_path / "x.npz"
        getattr(np, kind)(path, x=data)
    else:
        path = tmp_path / "x.npy"
        np.save(path, data)
    command = [sys.executable, "-c", MEASURE, str(path), kind]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    total, grown_megabytes = map(float, output.split())
    assert total == sum(range(120))
    assert grown_megabytes < 20


def test_tokenised_text_with_several_inputs(tmp_path):
    tokens, mask = np.arange(30).reshape(5, 6), np.ones((5, 6), np.int64)
    np.savez_compressed(tmp_path / "text.npz", tokens=tokens, mask=mask)
    feeds = list(open_dataset(tmp_path / "text.npz", [TOKENS, MASK]))
    assert [feed["tokens"].tolist() for feed in feeds] == tokens[:, np.newaxis].tolist()
    assert all(feed["mask"].shape == (1, 6) and feed["tokens"].dtype == np.int64 for feed in feeds)


def test_texts_of_different_lengths_in_a_folder_and_in_a_list(tmp_path):
    lengths = (3, 11, 7)
    texts = [{"tokens": np.arange(n)[np.newaxis], "mask": np.ones((1, n), np.int64)} for n in lengths]
    for number, text in enumerate(texts):
        np.savez(tmp_path / f"text_{number}.npz", **text)
    for source in (tmp_path, texts):
        dataset = open_dataset(source, [TOKENS, MASK])
        assert len(dataset) == 3
        for _ in range(2):
            for feed, text in zip(dataset, texts, strict=True):
                assert feed.keys() == text.keys()
                assert all(np.array_equal(feed[name], text[name]) for name in text)


def _refused(path, message):
    with pytest.raises(DataError) as error:
        list(open_dataset(path, [IMAGE]))
    assert "cannot read" in str(error.value)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_a_cut_off_npy_file_is_named(tmp_path):
    np.save(tmp_path / "x.npy", ARRAYS["rows"])
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-40])
    _refused(tmp_path / "x.npy", f"should end at byte {len(whole)}, but its data has {len(whole) - 40} bytes")


def test_a_member_shorter_than_its_header_says_is_named(tmp_path):
    stream = io.BytesIO()
    np.save(stream, ARRAYS["rows"])
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "x.npz", "w", kind) as archive:
            archive.writestr("image.npy", stream.getvalue()[:-4])
        _refused(tmp_path / "x.npz", "array 'image.npy' should end at byte")


def test_a_damaged_compressed_member_is_named(tmp_path):
    path = tmp_path / "x.npz"
    values = np.random.default_rng(0).normal(size=(400, 3, 5)).astype(np.float32)
    np.savez_compressed(path, image=values)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(bytes(damaged))
    _refused(path, "image.npy")


def test_a_file_that_is_no_array_inside_an_archive_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("notes.txt", "hello, these are notes")
    _refused(tmp_path / "x.npz", "magic")
