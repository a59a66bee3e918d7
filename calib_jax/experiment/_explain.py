"""Errors that a user can fix, in one line."""

import ast
import contextlib
import os
import sys
import traceback

import jax
from absl import flags


def explain(error: Exception, *, parsed: bool) -> str | None:
    """Return the line that a user should read; `None` if the error is not the user's mistake.

    Args:
      error: Exception that ended a command.
      parsed: Whether the command line, config file included, had been parsed before.

    Raises:
      SystemExit: With 141 if the reader of the output has gone (`| head`), which is no mistake.
    """
    if isinstance(error, BrokenPipeError):
        # What Python still has for the standard output goes nowhere, silently.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141)
    if isinstance(error, jax.errors.JaxRuntimeError):
        if jax.process_count() == 1:
            return None
        why = in_short(error).splitlines()[0]
        return (
            f"the processes lost each other ({why}). "
            "The same command goes on from the last checkpoint."
        )
    if isinstance(error, ValueError | OSError | flags.Error):
        return in_short(error)
    if parsed:
        return None
    if isinstance(error, NameError | ImportError | SyntaxError):  # in the config file
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = error if isinstance(error, SyntaxError) else last
        return f"{where.filename}, line {where.lineno}: {error}"
    if isinstance(error, AttributeError | KeyError | TypeError):
        return in_short(error)
    return None


def in_short(error: Exception) -> str:
    """Return the message of an error; of an error that ml_collections wraps, the last line."""
    message = str(error).strip()
    with contextlib.suppress(ValueError, SyntaxError):
        # str() of a KeyError, as ml_collections passes it on, is the repr of its message.
        message = "unknown config key " + " ".join(str(ast.literal_eval(message)).split())
    wrapped = "Traceback" in message or "Attempted" in message
    return message.splitlines()[-1].strip() if wrapped else message
