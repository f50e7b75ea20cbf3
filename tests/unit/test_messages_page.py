"""The page of error messages has what the code says."""

from pathlib import Path

from website.messages import page

CODE = """
def find(name):
    if not name:
        msg = f"There is no task {name!r} on this [server]."
        raise TaskNotFoundError(msg, remedy="List them: `holdfast tasks`.")
    else:
        raise TaskNotFoundError("Give the id of one task.")
"""


def test_messages_are_under_their_class_with_what_to_do_and_nothing_that_markdown_changes(
    tmp_path: Path,
) -> None:
    (tmp_path / "code.py").write_text(CODE, "utf-8")
    _, about, table = page(tmp_path).partition("## TaskNotFoundError\n\n")
    assert about
    assert table.splitlines()[4:] == [
        "| Give the id of one task. |  |",
        "| There is no task ... on this \\[server\\]. | List them: \\`holdfast tasks\\`. |",
    ]
