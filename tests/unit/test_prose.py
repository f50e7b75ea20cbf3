"""The pages of the documentation can be read, and what makes one hard to read is told."""

import re

from website.prose import Figures, lowered, measure, pages, problems, read_table

PAGE = """# A title that is no sentence

One two three. Four `five.six(seven, eight)` six [seven
eight](page.md)! It stands.

| a table | does not stand in a sentence |

* An item
* Another

```python
stands = "anew. Anew."
```
"""


def test_every_page_has_a_kind_and_reads_as_well_as_it_must() -> None:
    assert problems(pages(), read_table()) == []


def test_code_tables_and_headings_are_no_prose_and_tables_are_searched_for_words() -> None:
    words = [re.compile(word, re.IGNORECASE) for word in (r"\bstands?\b", r"\banew\b")]
    assert measure(PAGE, words) == Figures(words=13, sentence=2.6, hits=2)


def test_a_page_without_a_kind_or_harder_to_read_than_it_may_be_is_told() -> None:
    found = {"new.md": Figures(1, 1, 0), "long.md": Figures(1501, 20.1, 1)}
    found["table.md"] = Figures(9000, 5, 0)
    rows = {"long.md": {"kind": "how-to"}, "table.md": {"kind": "reference"}}
    kinds = "tutorial, how-to, explanation, reference"
    assert problems(found, {**rows, "gone.md": {"kind": "how-to"}}) == [
        "gone.md: is in website/pages.toml, and is no page",
        f"new.md: give it one kind in website/pages.toml: {kinds}",
        "long.md: words 1501, at most 1500",
        "long.md: sentence 20.1, at most 20",
        "long.md: hits 1, at most 0",
    ]


def test_limits_fall_to_the_standard_or_the_page_and_never_rise() -> None:
    row = {"kind": "how-to", "words": 900, "sentence": 25, "hits": 4}
    assert lowered(Figures(700, 22.5, 9), row) == {**row, "sentence": 22.5}
    assert lowered(Figures(950, 12, 0), row) == {"kind": "how-to", "words": 900}
