"""What the process that forks has imported and made, which each fork would do again."""

import gc
import importlib

from openai import AsyncOpenAI

from tests.support.certificates import share_certificates

for name in ("pytest", "tests.crash.programs", "holdfast.serving.activities"):
    importlib.import_module(name)
share_certificates()
AsyncOpenAI(api_key="any")  # reads the certificates
gc.freeze()
