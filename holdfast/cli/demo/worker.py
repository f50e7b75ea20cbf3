"""The demo's worker process, which the demo kills."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from holdfast.cli.demo.agent import APP, demo_agent
from holdfast.cli.demo.log import ExecutionLog
from holdfast.serving.worker_process import App, serve


def main() -> None:
    """Serve the demo's agent; arguments: data directory and execution log."""
    data_dir, log = map(Path, sys.argv[1:3])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    agent = demo_agent(ExecutionLog(log))
    asyncio.run(serve(App(name=APP, agents=(agent,)), data_dir=data_dir))


def _end_with_parent() -> None:
    """Stop when the demo has ended in any way: our stdin is closed then."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
