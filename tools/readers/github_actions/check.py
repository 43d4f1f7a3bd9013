"""Holds an action and a workflow of GitHub against the schemas that are published for them.

    check.py ACTION.yml WORKFLOW.yml

Prints one JSON object with what is wrong with each, as text; an empty text where nothing is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version


def problems(schema: str, path: str) -> str:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", path]
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()


def main() -> None:
    action, workflow = sys.argv[1:3]
    found = {"action": problems("github-actions", action), "workflow": problems("github-workflows", workflow)}
    print(json.dumps({"version": version("check-jsonschema"), "problems": found}))


if __name__ == "__main__":
    main()
