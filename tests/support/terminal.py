"""Records the demo as an animated picture of a terminal: `python -m tests.support.terminal`.

Runs `holdfast demo` in a terminal of its own, keeps when each line was written, and draws the lines
at these times. Waits are shortened to what a reader has patience for.
"""

import html
import os
import pty
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 122, 24
LONGEST_WAIT, END = 1.2, 8.0
"""Seconds."""

WIPED = re.compile(r"^.*\x1b\[2K", re.DOTALL)
"""What a line held before the terminal was told to clear it, such as a spinner."""
UP = "\x1b[1A"
STYLE = re.compile(r"\x1b\[([\d;]*)m")
OTHER = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\r")

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
 aria-label="A worker process is killed inside a model call; another one finishes the task.">
<style>
text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre }}
.s1 {{ font-weight: bold }} .s2 {{ fill: #7f8ea3 }}
.s31 {{ fill: #ff7b72 }} .s32 {{ fill: #7ee787 }} .s33 {{ fill: #e3b341 }}
@media (prefers-reduced-motion: no-preference) {{
{frames}}}
</style>
<rect width="100%" height="100%" rx="8" fill="#0f1720"/>
<svg x="14" y="10" width="{inner}" height="{lines}"><g id="all" transform="translate(0 {up})">
"""


@dataclass(frozen=True)
class Line:
    """One line of a terminal.

    Attributes:
        at: When it was written, in seconds.
        text: Its text, with marks of style and colour.
    """

    at: float
    text: str


def record(command: list[str]) -> list[Line]:
    """Run a command in a terminal and return the lines that it wrote."""
    ours, theirs = pty.openpty()
    width = {"COLUMNS": str(COLUMNS), "TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=os.environ | width) as process:
        os.close(theirs)
        begun, parts, lines = time.monotonic(), b"", list[Line]()
        while chunk := _read(ours):
            *whole, parts = (parts + chunk).split(b"\n")
            at = time.monotonic() - begun
            for each in map(bytes.decode, whole):
                del lines[len(lines) - each.count(UP) :]
                lines += [Line(at, row) for row in rows(last_written(each))]
    os.close(ours)
    if process.returncode:
        msg = f"{command} failed with {process.returncode}"
        raise RuntimeError(msg)
    return lines


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def last_written(line: str) -> str:
    """Return what of a line is left on the screen: marks of style, and no other codes."""
    return OTHER.sub(lambda code: code[0] if code[0].endswith("m") else "", WIPED.sub("", line))


def rows(line: str) -> list[str]:
    """Return a line as the rows that it takes. One with styles is never longer than a row."""
    return [line] if len(line) <= COLUMNS or "\x1b" in line else textwrap.wrap(line, COLUMNS)


def drawn(line: str) -> str:
    """Return a line as spans of SVG."""
    spans, style = list[str](), ""
    for place, part in enumerate(STYLE.split(line)):
        if place % 2:
            style = " ".join(f"s{code}" for code in part.split(";") if code not in {"", "0"})
        elif part:
            spans.append(f'<tspan class="{style}">{html.escape(part, quote=False)}</tspan>')
    return "".join(spans)


def animated(lines: list[Line]) -> str:
    """Return a picture that shows each line when it was written, and begins again at its end."""
    clock, before, times = 0.0, 0.0, list[float]()
    for line in lines:
        clock += min(line.at - before, LONGEST_WAIT)
        before = line.at
        times.append(clock)
    whole = clock + END
    frames, texts, scroll = list[str](), list[str](), list[str]()
    for number, (line, at) in enumerate(zip(lines, times, strict=True)):
        part = f"{100 * at / whole:.2f}%"
        frames.append(f"@keyframes k{number} {{ 0% {{ opacity: 0 }} {part} {{ opacity: 1 }} }}")
        frames.append(f"#l{number} {{ animation: k{number} {whole:.1f}s step-end infinite }}")
        texts.append(f'<text id="l{number}" y="{18 * number + 14}">{drawn(line.text)}</text>')
        if number >= ROWS:
            scroll.append(f"{part} {{ transform: translateY(-{18 * (number + 1 - ROWS)}px) }}")
    frames.append(f"@keyframes up {{ 0% {{ transform: translateY(0) }} {' '.join(scroll)} }}")
    frames.append(f"#all {{ animation: up {whole:.1f}s step-end infinite }}")
    size = {"width": COLUMNS * 8 + 28, "inner": COLUMNS * 8, "lines": 18 * ROWS}
    up = -18 * max(0, len(lines) - ROWS)
    head = HEAD.format(**size, height=18 * ROWS + 24, frames="\n".join(frames), up=up)
    return head + "\n".join(texts) + "\n</g></svg></svg>\n"


def main() -> None:
    """Record the demo and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("holdfast")), "demo", "--data-dir", folder]
        lines = record(command)
    PICTURE.write_text(animated([Line(0, "\x1b[1m$ holdfast demo"), *lines]), "utf-8")


if __name__ == "__main__":
    main()
