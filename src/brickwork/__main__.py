"""`python -m brickwork`, the same as `brickwork`."""

from brickwork.cli import entry

if __name__ == "__main__":
    entry()
