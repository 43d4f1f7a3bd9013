"""The commands put together, and what every one of them does about errors.

Exit codes: 0 good; 1 a check failed, or --strict and a warning; 2 wrong use or bad input; 3 a fault of onnxq itself;
130 interrupted; 143 terminated (SIGTERM).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from onnxq.cli.commands import SUMMARIES, function_of, names
from onnxq.cli.console import print_error
from onnxq.cli.crash import INTERNAL_ERROR, internal_error, memory_error, recursion_error
from onnxq.cli.help_texts import GROUP_OF, examples, name_values, put_into_panels
from onnxq.cli.termination import Terminated
from onnxq.distributed import AlreadyTold
from onnxq.errors import InternalError, OnnxqError
from onnxq.escapes import one_line
from onnxq.machine import system_message

# typer has click's exceptions under different names in its releases; BadParameter -> UsageError -> ClickException.
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""What click raises for wrong arguments."""

_FOR_TYPER: tuple[type[BaseException], ...] = (typer.Exit, typer.Abort, typer.BadParameter.mro()[2])
"""Wrong use of the command line, and the ends of commands, which typer turns into words and exit codes."""


class _Command(TyperCommand):
    """One command. Its examples stand behind the options as they are: releases of typer fold epilogues differently."""

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        name_values(found)
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.write(examples(str(self.name)))


class _CommandsByName(MutableMapping[str, Any]):
    """Name -> command of typer, made when it is asked for: the options of all of them take longer than --help."""

    def __init__(self) -> None:
        self._made: dict[str, TyperCommand | None] = dict.fromkeys(names())

    def __getitem__(self, name: str) -> Any:
        if self._made[name] is None:
            alone = typer.Typer(add_completion=False, **_LOOKS)
            alone.command(name, cls=_Command)(function_of(name))
            made = cast(TyperCommand, typer.main.get_command(alone))
            put_into_panels(made.params)
            self._made[name] = made
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class _Commands(TyperGroup):
    """Turns every error into one message and an exit code; the traceback of a bug goes into a file."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.commands = _CommandsByName()
        self._listing = False

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        name_values(found)
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._listing and cmd_name in SUMMARIES:
            return TyperCommand(cmd_name, help=SUMMARIES[cmd_name], rich_help_panel=GROUP_OF.get(cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._listing = False

    def make_context(self, *args: Any, **named: Any) -> Any:
        with _shown_usage_errors():
            return super().make_context(*args, **named)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _shown_usage_errors():
                return super().invoke(ctx)
        except InternalError as error:
            print_error(internal_error(error))
            raise typer.Exit(error.exit_code) from error
        except OnnxqError as error:
            if not isinstance(error, AlreadyTold):
                print_error(str(error))
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of our output has gone; typer ends the process quietly
                raise
            print_error(system_message(error))
            raise typer.Exit(2) from None
        except Terminated:
            print_error("terminated")
            raise typer.Exit(143) from None
        except KeyboardInterrupt:
            print_error("interrupted")
            raise typer.Exit(130) from None
        except MemoryError as error:
            print_error(memory_error(error))
            raise typer.Exit(2) from None
        except RecursionError:
            print_error(recursion_error())
            raise typer.Exit(2) from None
        except _FOR_TYPER:
            raise
        except Exception as error:
            print_error(internal_error(error))
            raise typer.Exit(INTERNAL_ERROR) from error


@contextmanager
def _shown_usage_errors() -> Iterator[None]:
    """Errors about arguments quote them: what a terminal would obey becomes escapes."""
    try:
        yield
    except _USAGE_ERROR as error:
        error.message = "\n".join(map(one_line, error.message.split("\n")))
        raise


def _print_version(wanted: bool) -> None:
    if wanted:
        from onnxq.version import __version__

        typer.echo(f"onnxq {__version__}")
        raise typer.Exit()


_LOOKS: Any = {
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Of the application and of each of its commands."""

app = typer.Typer(cls=_Commands, no_args_is_help=True, **_LOOKS)  # with --install-completion


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Quantize ONNX models for real chips, and check what was written."""
