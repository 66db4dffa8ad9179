"""The command door: reads arguments, calls the library, prints. No logic of its own.

Heavy modules are imported inside the commands, so that `exactk --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from exactk.errors import ExactKError

ORDER = (
    "demo", "solve", "data", "train", "evaluate", "compare", "recommend", "score", "export", "serve", "key", "settings",
)  # fmt: skip


class Commands(TyperGroup):
    """All commands. Typer would end on Ctrl-C without a word, and fail where the reader of a pipe has gone."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order in which people need them."""
        return sorted(
            super().list_commands(ctx), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)
        )

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # a full disk or a closed pipe is met here, not when the interpreter ends
        except KeyboardInterrupt as stopped:
            sys.stderr.write(f"exactk: {as_options(str(stopped)) or 'interrupted'}\n")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # `exactk ... | head`: the reader has what it wanted
            # What is left unwritten at the end goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


app = typer.Typer(
    cls=Commands,
    name="exactk",
    help="The best whole card: exactly K items out of N candidates, every rule kept.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> bool:
    if value:
        from exactk import __version__

        typer.echo(f"exactk {__version__}")
        raise typer.Exit
    return value


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Results go to stdout, talk and progress to stderr. Exit 0: fine, 1: our fault, 2: yours."""


from exactk.cli import cards, data, model, more  # noqa: E402  (commands register themselves on `app`)

if find_spec("exactk_lab") is not None:  # a checkout: `bench` and `reproduce` join
    import_module("exactk_lab.commands")

__all__ = ["app", "cards", "data", "main", "model", "more"]


# What the library's messages advise, in Python's words and in those of the command line.
OPTIONS = {
    "text_ids=True": "--text-ids",
    "skip_bad=True": "--skip-bad",
    "the same call with resume=True": "the same command with --resume",
    "the same call": "the same command",
    "resume=True": "--resume",
    'bad_rows="drop"': "--bad-rows drop",
    'columns={"user_id": ...}': "--map user_id=...",
    'columns={"item_id": ...}': "--map item_id=...",
    'columns={"request_id": ...}': "--map request_id=...",
}


def as_options(message: str) -> str:
    """A message of the library in the words of this door."""
    for said, option in OPTIONS.items():
        message = message.replace(said, option)
    return message


def main() -> None:
    """Run the command line: an error of the caller's is one clear line and exit 2."""
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # a letter that the terminal lacks is written as \xe9, and ends nothing
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="exactk")
    except ExactKError as error:
        sys.stderr.write(f"exactk: {as_options(str(error))}\n")
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        sys.stderr.write("exactk: this command learns, which needs torch: pip install 'exactk[learn]'\n")
        sys.exit(2)
    except OSError as error:  # a full disk, a folder that may not be written, a path through a file
        place = "" if error.filename is None else f"{error.filename}: "
        sys.stderr.write(f"exactk: {place}{error.strerror or error}\n")
        sys.exit(2)
