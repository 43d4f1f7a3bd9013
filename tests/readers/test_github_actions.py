"""action.yml and the example workflow hold to the published schemas; a mistake is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readers.environment import ROOT, run_check

pytestmark = pytest.mark.readers

ACTION, WORKFLOW = ROOT / "action.yml", ROOT / "examples/github-action/quantize.yml"


def test_both_files_hold_to_their_schemas(tmp_path: Path) -> None:
    assert run_check("github_actions", ACTION, WORKFLOW)["problems"] == {"action": "", "workflow": ""}
    for path, right, wrong in ((ACTION, "shell: bash", "shel: bash"), (WORKFLOW, "runs-on:", "runs-onn:")):
        (tmp_path / path.name).write_text(path.read_text().replace(right, wrong))
    found = run_check("github_actions", tmp_path / ACTION.name, tmp_path / WORKFLOW.name)["problems"]
    assert all(found.values()), found
