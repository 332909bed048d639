"""`python -m brickwork`, the same as `brickwork`."""

from brickwork.cli import main

if __name__ == "__main__":
    main()
