"""Entry point of a worker process: serves the agents named by arguments or environment."""

from holdfast.serving.worker_process import main

if __name__ == "__main__":
    main()
