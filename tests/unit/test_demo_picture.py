"""The picture of the demo shows what its terminal showed in the end."""

from tests.support.terminal import COLUMNS, Line, animated, drawn, last_written, rows


def test_a_line_is_what_was_left_of_it_with_its_styles() -> None:
    spinning = "\x1b[?25l|\r waiting\r\x1b[2K\x1b[1;31m a < b\x1b[0m, done\r"
    assert last_written(spinning) == "\x1b[1;31m a < b\x1b[0m, done"
    spans = '<tspan class="s1 s31"> a &lt; b</tspan><tspan class="">, done</tspan>'
    assert drawn(last_written(spinning)) == spans


def test_long_lines_are_wrapped_and_waits_shortened() -> None:
    assert [len(row) for row in rows("word " * 30)] == [COLUMNS - 3, 29]
    picture = animated([Line(1, "begun"), Line(60, "done")])
    assert "@keyframes k1 { 0% { opacity: 0 } 21.57% { opacity: 1 } }" in picture
    assert picture.index(">begun<") < picture.index(">done<")
