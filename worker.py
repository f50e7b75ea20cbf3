"""Entry point of a worker process: serves the agents named by arguments or environment."""

from holdfast.serve import main

if __name__ == "__main__":
    main()
