"""`python -m holdfast.testing.fake_api`: the fake API as a process of its own."""

from holdfast.testing.fake_api.server import main

if __name__ == "__main__":
    main()
