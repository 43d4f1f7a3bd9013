"""Scores of a metric of the user's are used again only while its code, and that of what it imports, is the same."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onnxq.mixed_precision import Subject, sensitivity
from onnxq.mixed_precision.metric_identity import sources_of
from onnxq.user_code import find_function

SubjectOf = Callable[..., Subject]

FILES = {
    "metric_of_mine.py": "import helper_one\nfrom package_of_mine import deep\n\n\n"
    "def metric(outputs, labels):\n    from helper_late import late\n\n    return helper_one.of(outputs) + late\n",
    "helper_one.py": "from helper_two import FACTOR\n\n\ndef of(outputs):\n"
    "    return FACTOR * float(outputs['logits'].mean())\n",
    "helper_two.py": "FACTOR = 1.0\n",
    "helper_late.py": "late = 0.0\n",
    "package_of_mine/__init__.py": "",
    "package_of_mine/deep.py": "from . import deeper\n",
    "package_of_mine/deeper.py": "import numpy\n",
    "unrelated.py": "nothing = 0\n",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a metric and modules; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    yield tmp_path
    forget(tmp_path)


def forget(folder: Path) -> None:
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
    importlib.invalidate_caches()


def sources(place: str = "metric_of_mine") -> list[str]:
    forget(Path.cwd())
    return sources_of(find_function(f"{place}:metric", "metric"))


@pytest.mark.parametrize("place", ["metric_of_mine", "metric_of_mine.py"])
@pytest.mark.parametrize("name", sorted(set(FILES) - {"unrelated.py"}))
def test_a_change_in_what_is_imported_is_noticed(here: Path, place: str, name: str) -> None:
    before = sources(place)
    assert sources(place) == before
    with (here / name).open("a") as stream:
        stream.write("\n# another one\n")
    assert sources(place) != before


def test_a_change_elsewhere_is_not(here: Path) -> None:
    before = sources()
    (here / "unrelated.py").write_text("nothing = 1\n")
    assert sources() == before


def test_a_metric_in_a_folder_of_its_own_has_the_modules_of_the_package(here: Path) -> None:
    (here / "package_of_mine" / "measuring.py").write_text(
        "from package_of_mine.deep import deeper\n\n\ndef metric(outputs, labels):\n    return 0.0\n"
    )
    before = sources("package_of_mine.measuring")
    (here / "package_of_mine" / "deeper.py").write_text("import numpy as np\n")
    assert sources("package_of_mine.measuring") != before


def test_installed_modules_are_not_followed() -> None:
    from statistics import mean

    assert len(sources_of(mean)) == 1
    assert len(sources_of(len)) == 1


@pytest.mark.usefixtures("here")
def test_scores_are_run_anew_when_a_helper_has_changed(digits: SubjectOf, tmp_path: Path) -> None:
    def measured() -> dict[str, int]:
        forget(tmp_path)
        return dict(sensitivity(digits(metric="metric_of_mine:metric", cache=tmp_path / "cache")).evaluations)

    first = measured()
    assert first["run"] > 0
    assert measured() == {"run": 0, "known": first["run"]}
    Path("helper_two.py").write_text("FACTOR = 2.0\n")
    assert measured() == first
