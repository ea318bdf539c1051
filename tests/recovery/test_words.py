"""Every label has its sentence for people."""

from recovery.labels import Label
from recovery.words import WORDS


def test_every_label_has_one_sentence_and_no_two_share_it() -> None:
    assert set(WORDS) == set(Label)
    assert len(set(WORDS.values())) == len(WORDS)


def test_sentences_are_one_line_without_a_full_stop() -> None:
    """They stand behind `label: ` in plan's output."""
    assert all(words == words.strip() and "\n" not in words and not words.endswith(".") for words in WORDS.values())
