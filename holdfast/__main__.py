"""`python -m holdfast`: the same as the console script."""

from holdfast.cli import main

if __name__ == "__main__":
    main()
