"""The `brokerweave` command: its list of commands, and the border where errors become one line and a code.

Owns exit codes (0; 1 failure; 2 bad usage or configuration) and the wording of errors. Invariants: a user's
mistake never shows a traceback; nothing heavier than typer is imported before a command runs. Must not know:
what a command does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from brokerweave.cli import (
    bench_commands,
    controller_command,
    dead_letter_commands,
    demo_command,
    gateway_command,
    haproxy_command,
    log_commands,
    node_command,
    pipeline_commands,
    probe_command,
    running_commands,
    sim_command,
)
from brokerweave.cli.output import help_text
from brokerweave.errors import BrokerweaveError, ConfigError

_HELP = """Makes any MQTT brokers act as one.

A node in front of each broker relays its clients, and sends what they publish to the subscribers at every
other site.

\b
Examples:
  brokerweave demo
  brokerweave node a.toml
  brokerweave status
"""

app = typer.Typer(
    name="brokerweave",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=help_text(_HELP),
    context_settings={"help_option_names": ["-h", "--help"]},
)
node_command.register(app)
running_commands.register(app)
dead_letter_commands.register(app)
log_commands.register(app)
pipeline_commands.register(app)
bench_commands.register(app)
probe_command.register(app)
haproxy_command.register(app)
controller_command.register(app)
gateway_command.register(app)
demo_command.register(app)
sim_command.register(app)


def version_text() -> str:
    """What `--version` says, with which frame scanner runs."""
    from brokerweave import __version__
    from brokerweave.runtime import compiled

    return f"brokerweave {__version__} (frame scanner: {compiled.state()})"


@app.callback()
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and end.")] = False,
) -> None:
    if version:
        print(version_text())
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command that the arguments name, and end the process with its code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if len(words) == 2 and words[0] == "node" and not words[1].startswith("-"):
            # Typer's parser costs some 5 MB and a sixth of the start, which such a node can do without.
            code = node_command.node_of_file(words[1])
        else:
            code = app(words, prog_name="brokerweave", standalone_mode=False)
    except BrokerweaveError as error:
        _fail(str(error), 2 if isinstance(error, ConfigError) else 1)
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try to flush the rest.
        sys.stdout = None
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        # Typer's usage errors share no public base class, but they all know how to say what is wrong.
        say = getattr(error, "format_message", None)
        if say is None:
            raise
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "brokerweave"
        _fail(f"{' '.join(say().split())} (see {command} --help)", 2)
    sys.exit(code or 0)


def _fail(message: str, code: int) -> NoReturn:
    print(f"brokerweave: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
