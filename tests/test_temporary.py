"""Temporary folders vanish with their owner, and those of owners who were killed with the next run."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from onnxq.files import replace_file
from onnxq.output_folder import claim
from onnxq.temporary import PREFIX, OwnedFolder, remove_stale, temporary_folder


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_folder_is_gone_after_its_block(tmp_path: Path) -> None:
    with temporary_folder() as folder:
        assert folder.parent == tmp_path
        (folder / "x").write_text("x")
    with pytest.raises(ZeroDivisionError), temporary_folder():
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_a_folder_is_gone_with_its_object(tmp_path: Path) -> None:
    folder = OwnedFolder()
    assert list(tmp_path.iterdir()) == [folder.path]
    del folder
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_folders_of_live_owners_stay(tmp_path: Path) -> None:
    with temporary_folder() as folder, temporary_folder("activations-", tmp_path) as other:
        (folder / "x").write_text("x")
        remove_stale()
        remove_stale(tmp_path, "activations-")
        assert (folder / "x").exists()
        assert other.exists()


@pytest.mark.skipif(os.name != "posix", reason="kills of POSIX")
def test_what_a_killed_process_has_left_is_removed_by_the_next_run(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from onnxq.files import replace_file\n"
        "from onnxq.temporary import OwnedFolder\n"
        "folder = OwnedFolder()\n"
        "(folder.path / 'x').write_text('x')\n"
        "replace_file(Path('out/improving/table.json'), lambda stream: os._exit(9))\n"
    )
    improving = tmp_path / "out" / "improving"
    improving.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 9
    (left,) = tmp_path.glob(f"{PREFIX}*")
    assert [path.name[:12] for path in improving.iterdir()] == [".table.json."]
    with claim(tmp_path / "out"):
        pass
    assert not left.exists()
    assert not list(improving.iterdir())


def test_only_folders_that_are_recognisably_temporary_are_removed(tmp_path: Path) -> None:
    kept = ["onnxq-abcd1234", "onnxq-tmp-notes", "onnxq-tmp-abcd12345"]  # the first is a result of `quantize`
    for name in (*kept, f"{PREFIX}abcd1234"):
        (tmp_path / name).mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "x").write_text("x")
    (tmp_path / f"{PREFIX}aaaa1111").symlink_to(target)
    (tmp_path / f"{PREFIX}bbbb2222").write_text("a file")
    remove_stale()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([*kept, "target", f"{PREFIX}aaaa1111", f"{PREFIX}bbbb2222"])
    assert (target / "x").exists()


@pytest.mark.skipif(os.name != "posix", reason="users of POSIX")
def test_folders_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{PREFIX}abcd1234").mkdir()
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    remove_stale()
    assert (tmp_path / f"{PREFIX}abcd1234").exists()


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / f"{PREFIX}abcd1234").mkdir()
    (tmp_path / ".a.json.onnxq-tmp-abcd1234").write_text("")
    remove_stale()
    with temporary_folder() as folder:
        assert folder.is_dir()
    replace_file(tmp_path / "a.json", lambda stream: stream.write(b"x"))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".a.json.onnxq-tmp-abcd1234", "a.json", f"{PREFIX}abcd1234"]


def test_a_folder_that_is_cleared_away_before_it_is_owned_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = tempfile.mkdtemp, []

    def make(*arguments: object, **named: object) -> str:
        made.append(real(*arguments, **named))  # type: ignore[call-overload]
        if len(made) == 1:
            remove_stale()
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    with temporary_folder() as folder:
        assert folder == Path(made[1])
        assert folder.is_dir()
    assert not list(tmp_path.iterdir())
