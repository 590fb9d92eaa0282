"""Starts the command line: `python -m specmeter`, and the program `specmeter`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it without a word."""
    try:
        from specmeter.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
