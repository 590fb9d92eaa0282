"""`python -m specmeter`."""

from specmeter.cli import main

if __name__ == "__main__":
    main()
