"""A wrong command line as an error of ours: which option, what is wrong with its value, what was probably meant."""

from __future__ import annotations

from typer.exceptions import TyperException

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.core.explain_shapes import shape_text, words_of
from dispatcher.core.nearness import nearest

_NONE_OF = " is not one of "


def usage_error(error: TyperException, program: str) -> CliError:
    """What the parser refused. Its words for commands and options are good; those for values are its checker's."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else program
    near = _in_our_words(error)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return CliError(error.format_message(), where=command, fix=f"{meant}see: {command} --help", code=ExitCode.USAGE)


def _in_our_words(error: TyperException) -> tuple[str, ...]:
    """Put our words on a refused value. Returns what may have been meant."""
    from pydantic import ValidationError

    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return ()
    fault = cause.errors(include_url=False)[0]
    given, text = str(fault["input"]), shape_text(fault["type"], fault.get("ctx", {}))
    _, found, listed = text.partition(_NONE_OF)
    words = words_of(listed)
    error.message = f"{given!r}{_NONE_OF}{', '.join(words)}" if found else f"{given!r}: {text}"
    return nearest(given, words)
