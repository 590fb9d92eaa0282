"""Starts the command line: `python -m specmeter`, and the program `specmeter`."""

import gc
import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it without a word."""
    gc.set_threshold(50_000, 20, 20)  # imports make many objects and no garbage: looking for some is 5% of a command
    try:
        from specmeter.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
