"""The command `onnxq`: one file per command, nothing imported before it is needed."""

from __future__ import annotations

import sys
import time

_began: float | None = None


def began() -> float | None:
    """When the command was called, by time.perf_counter(); None where something else runs it."""
    return _began


def main() -> None:
    """Run the command line in a child of this process, and end with its exit code."""
    global _began
    _began = time.perf_counter()
    from onnxq.cli.streams import open_closed_streams
    from onnxq.cli.supervise import supervise

    open_closed_streams()
    supervise()
    run_here()


def run_here() -> None:
    """Run the command line in this process, and end it with the command's exit code."""
    from onnxq.cli.streams import accept_every_character, finish_output
    from onnxq.cli.termination import end_cleanly_when_terminated, end_undisturbed
    from onnxq.collector import collector_relaxed

    try:
        with collector_relaxed():
            from onnxq.cli.app import app

            accept_every_character()
            end_cleanly_when_terminated()
            app(prog_name="onnxq")
    except KeyboardInterrupt:  # before or behind the command, which tells of its own
        end_undisturbed()
        raise SystemExit(130) from None
    except SystemExit as end:
        if end.code in (130, 143):
            end_undisturbed()
        sys.exit(finish_output(end.code))
