"""The command `onnxq`: one file per command, nothing imported before it is needed."""

from __future__ import annotations


def main() -> None:
    """Run the command line and end the process with its exit code."""
    from onnxq.cli.app import app
    from onnxq.cli.console import accept_every_character

    accept_every_character()
    app(prog_name="onnxq")
