"""Files reach an output folder all together or not at all, whatever fails or is killed; two runs never mix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxq.errors import ConfigError, MachineError
from onnxq.files import write_json
from onnxq.output_folder import LOCK, STAGE, claim, clear_away, read_together, settle, staging
from onnxq.switch import COMMIT
from tests.deliveries import deliver, fill, hidden, state


def test_files_replace_those_of_before_and_foreign_ones_stay(tmp_path: Path) -> None:
    fill(tmp_path, a="old", notes="mine")
    deliver(tmp_path, a="new", b="new")
    assert state(tmp_path) == {"a": "new", "b": "new", "notes": "mine"}
    assert not hidden(tmp_path)


def test_a_failed_run_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    fill(tmp_path / "out", a="old")
    with pytest.raises(ZeroDivisionError):
        deliver(tmp_path / "out", then=lambda: 1 / 0, a="new")
    assert state(tmp_path / "out") == {"a": "old"}
    assert not hidden(tmp_path / "out")


def test_folders_that_were_made_for_a_failed_run_are_gone(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), claim(tmp_path / "a" / "b" / "out"):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("early", [True, False])
def test_a_folder_in_the_way_is_refused_before_the_first_move(tmp_path: Path, early: bool) -> None:
    fill(tmp_path, a="old", b="old")
    if early:
        (tmp_path / "plan.json").mkdir()
    texts = {"a": "new", "b": "new", "plan.json": "new", "z": "new"}
    with pytest.raises(ConfigError, match=r"plan\.json is a folder"):
        deliver(tmp_path, then=lambda: (tmp_path / "plan.json").mkdir(exist_ok=True), **texts)
    assert state(tmp_path) == {"a": "old", "b": "old"}


def test_an_input_is_refused_before_the_first_move(tmp_path: Path) -> None:
    fill(tmp_path, a="old", model="input")
    with pytest.raises(ConfigError, match="would overwrite the input"):
        deliver(tmp_path, (tmp_path / "model",), a="new", model="new")
    assert state(tmp_path) == {"a": "old", "model": "input"}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_move_that_fails_puts_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException
) -> None:
    fill(tmp_path, a="old", c="old", notes="mine")
    left, real = [number], os.replace

    def replace(source: Path, target: Path) -> None:
        if Path(target).parent == tmp_path and left[0] >= 0:
            if left[0] == 0:
                left[0] = -1
                raise error
            left[0] -= 1
        real(source, target)

    with pytest.raises(type(error)):
        deliver(tmp_path, then=lambda: monkeypatch.setattr(os, "replace", replace), a="new", b="new", c="new", d="new")
    assert left == [-1]
    assert state(tmp_path) == {"a": "old", "c": "old", "notes": "mine"}
    assert not hidden(tmp_path)


def test_without_hard_links_the_old_files_are_kept_by_moving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    fill(tmp_path, a="old", b="old")
    deliver(tmp_path, a="new", b="new")
    assert state(tmp_path) == {"a": "new", "b": "new"}
    assert not hidden(tmp_path)


def test_a_second_writer_is_refused_at_once(tmp_path: Path) -> None:
    with claim(tmp_path):
        refused = rf"another onnxq \(process {os.getpid()}\) is writing into {tmp_path}: wait"
        with pytest.raises(ConfigError, match=refused):
            deliver(tmp_path, a="second")
        with claim(tmp_path, "other.onnx"):  # files beside it are somebody else's
            pass
    with claim(tmp_path, "other.onnx"), pytest.raises(ConfigError, match=r"writing into .*other\.onnx: wait"):
        deliver(tmp_path, only="other.onnx")
    deliver(tmp_path, a="third")
    assert state(tmp_path) == {"a": "third"}


def test_a_claimed_folder_is_passed_on(tmp_path: Path) -> None:
    with claim(tmp_path) as output:
        deliver(output, a="new")
        assert hidden(tmp_path) == [LOCK]
    assert not hidden(tmp_path)


def test_a_link_to_the_output_folder_is_the_folder(tmp_path: Path) -> None:
    fill(tmp_path / "real", a="old")
    link = tmp_path / "link"
    link.symlink_to("real")
    with claim(link), pytest.raises(ConfigError, match="another onnxq"):
        deliver(tmp_path / "real", a="second")
    deliver(link, a="new")
    assert link.is_symlink()
    assert state(tmp_path / "real") == {"a": "new"}


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, out="a file")
    with pytest.raises(ConfigError, match="is a file"):
        deliver(tmp_path / "out", a="new")


def test_stages_of_live_processes_are_left_alone(tmp_path: Path) -> None:
    with claim(tmp_path, "one") as output, staging(output) as stage:
        fill(stage, a="new")
        deliver(tmp_path, b="new")
        settle(tmp_path)
        assert state(stage) == {"a": "new"}
    assert state(tmp_path) == {"a": "new", "b": "new"}


@pytest.mark.parametrize(
    "name", [f"{STAGE}abcd1234", ".plan.json.onnxq-tmp-abcd1234", ".onnxq.lock", ".simulated.onnx.onnxq.lock"]
)
def test_what_dead_processes_have_left_is_removed(tmp_path: Path, name: str) -> None:
    fill(tmp_path, a="old", **{".onnxqrc": "mine", ".plan.json.swp": "mine"})
    (tmp_path / ".onnxq-settings").mkdir()
    if name.startswith(STAGE):
        fill(tmp_path / name / "new", a="half")
    else:
        fill(tmp_path, **{name: "half"})
    deliver(tmp_path, b="new")
    assert sorted(hidden(tmp_path)) == [".onnxq-settings", ".onnxqrc", ".plan.json.swp"]
    assert state(tmp_path)["a"] == "old"


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def read_only(path: Path, flags: int, *rest: object, **named: object) -> int:
        if Path(path).name == LOCK and flags & os.O_CREAT:
            raise OSError(30, "Read-only file system", str(path))
        return real(path, flags, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OSError, match=r"Read-only file system.*made"):
        deliver(tmp_path / "made", a="new")
    assert not list(tmp_path.iterdir())


def test_a_parent_can_clear_away_what_its_child_has_left(tmp_path: Path) -> None:
    fill(tmp_path, **{LOCK: "7", ".a.onnx.onnxq.lock": "7", "mine.onnxq.lock": "mine"})
    fill(tmp_path / f"{STAGE}abcd1234" / "new", a="half")
    with claim(tmp_path, "b"):
        clear_away(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [".b.onnxq.lock", "mine.onnxq.lock"]


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere" / "new", a="mine")
    fill(tmp_path / "elsewhere", **{"commit.json": '{"moves": [{"name": "a", "replaces": false}]}'})
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{STAGE}abcd1234").symlink_to("../elsewhere")
    (out / ".a.onnxq-tmp-abcd1234").symlink_to("../elsewhere/new/a")
    (out / f"{STAGE}abcd1234" / COMMIT).rename(tmp_path / "journal")
    deliver(out, b="new")
    assert state(tmp_path / "elsewhere" / "new") == {"a": "mine"}
    assert (out / ".a.onnxq-tmp-abcd1234").is_symlink()


@pytest.mark.parametrize("name", ["../../victim", "..", ".", ""])
def test_a_journal_that_names_files_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    stage = tmp_path / "out" / f"{STAGE}abcd1234"
    fill(stage, **{COMMIT: f'{{"moves": [{{"name": "{name}", "replaces": false}}]}}'})
    with pytest.raises(ConfigError, match="names files outside"):
        settle(tmp_path / "out")


def test_a_journal_that_cannot_be_carried_out_is_an_error_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = tmp_path / f"{STAGE}abcd1234"
    fill(tmp_path, a="old")
    fill(stage / "new", a="new")
    fill(stage / "old")
    fill(stage, **{COMMIT: '{"moves": [{"name": "a", "replaces": true}]}'})

    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system", "x")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", read_only)
        with pytest.raises(MachineError, match=r"killed while it moved .*Read-only"):
            settle(tmp_path)
    settle(tmp_path)
    assert state(tmp_path) == {"a": "new"}


@pytest.mark.parametrize("text", ["", "[]", '{"moves": 3}', '{"moves": [{"name": "a"}]}', "[" * 100_000])
def test_an_unreadable_journal_is_an_error(tmp_path: Path, text: str) -> None:
    fill(tmp_path / f"{STAGE}abcd1234", **{COMMIT: text})
    with pytest.raises(ConfigError, match="no readable journal"):
        settle(tmp_path)


def test_files_that_change_while_they_are_read_are_read_again(tmp_path: Path) -> None:
    fill(tmp_path, plan="old", qparams="old")
    times = []

    def read() -> tuple[str, str]:
        plan = (tmp_path / "plan").read_text()
        if not times:
            deliver(tmp_path, plan="new", qparams="new")
        times.append(plan)
        return plan, (tmp_path / "qparams").read_text()

    assert read_together(tmp_path, read) == ("new", "new")
    assert times == ["old", "new"]


def test_an_error_of_reading_is_told_unless_the_files_have_changed(tmp_path: Path) -> None:
    fill(tmp_path, plan="old")

    def read() -> None:
        if (tmp_path / "plan").read_text() == "old":
            deliver(tmp_path, plan="new")
        raise ConfigError((tmp_path / "plan").read_text())

    with pytest.raises(ConfigError, match="new"):
        read_together(tmp_path, read)


def test_a_temporary_file_in_use_survives_the_claim_of_another(tmp_path: Path) -> None:
    class Late(dict):  # type: ignore[type-arg]
        def __iter__(self):  # type: ignore[no-untyped-def]
            deliver(tmp_path, a="new")
            return super().__iter__()

    write_json(tmp_path / "slow.json", Late(x=1))
    assert state(tmp_path) == {"a": "new", "slow.json": '{\n  "x": 1\n}\n'}
