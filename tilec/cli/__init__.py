"""The command line. Results go to standard output, everything else to standard error.

Exit status: 0 for success, 1 for a failed check or a mistake in a program or its arguments, 2 for wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line on `argv` (default: the process's arguments); gives the exit status."""
    from tilec.errors import CompilerBug, TilecError

    _accept_all_names()
    try:
        from tilec.cli.app import app  # takes a while, in which Ctrl-C may come

        app(list(sys.argv[1:] if argv is None else argv), prog_name="tilec")
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except CompilerBug as e:
        return _fail(f"this is a bug in tilec: {e}")
    except TilecError as e:
        return _fail(str(e), prefix="" if _has_position(e) else "error: ")
    except BrokenPipeError:
        # whoever read our output has gone; nothing is left to say, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as e:  # the disk that the output goes to is full, say
        return _fail(f"{e.strerror or e}" + (f": {e.filename}" if e.filename else ""))
    except MemoryError:
        return _fail("there is not enough memory for this; try smaller sizes (--size)")
    except Exception as e:
        return _unexpected(e)
    return 0


def _accept_all_names() -> None:
    """Has a terminal that cannot show a letter of a name get an escape instead of the command an error."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _has_position(e: Exception) -> bool:
    return hasattr(e, "diagnostics")


def _fail(message: str, prefix: str = "error: ") -> int:
    print(f"{prefix}{message}", file=sys.stderr)
    return 1


def _unexpected(e: Exception) -> int:
    """A mistake of tilec's own. The traceback comes only where TILEC_DEBUG is set."""
    if os.environ.get("TILEC_DEBUG"):
        raise e
    said = str(e).strip().split("\n")[0]
    return _fail(f"this is a bug in tilec: {type(e).__name__}: {said} (TILEC_DEBUG=1 shows where)")
