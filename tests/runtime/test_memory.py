"""What is left of memory, as the system and as a container see it."""

import pytest

from onnxq.errors import ConfigError
from onnxq.runtime.memory import _container, available_memory, read_size


def test_there_is_some_memory():
    assert available_memory() > 0


def test_files_that_were_read_can_be_given_back(tmp_path):
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    assert _container(tmp_path) == 100000
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 600000\nactive_file 5\n")
    assert _container(tmp_path) == 700000


def test_a_container_without_a_limit_has_none(tmp_path):
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("900000\n")
    assert _container(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "size"), [("500MB", 500 * 2**20), ("2 GB", 2**31), ("1.5g", 3 * 2**29), (4096, 4096), ("3KiB", 3072)]
)
def test_sizes_are_read_with_their_unit(text, size):
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1GB", "0", "2XB", "lots"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match="such as 500MB"):
        read_size(text)
