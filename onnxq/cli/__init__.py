"""The command `onnxq`: one file per command, nothing imported before it is needed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    from onnxq.cli.streams import accept_every_character, finish_output, open_closed_streams

    open_closed_streams()
    from onnxq.cli.app import app
    from onnxq.cli.termination import end_cleanly_when_terminated

    accept_every_character()
    end_cleanly_when_terminated()
    try:
        app(prog_name="onnxq")
    except SystemExit as end:
        sys.exit(finish_output(end.code))
