"""stand-in until LEDGER lands"""
from typing import Literal
from recovery.space.records import Attempt
AttemptWord = Literal["prepared", "running", "exited", "cut", "void", "lost"]
def word_of(attempt: Attempt) -> AttemptWord:
    if attempt.void:
        return "void"
    if attempt.exit is not None:
        return "cut" if attempt.cut else "exited"
    if attempt.fate == "condemned":
        return "cut"
    return "prepared" if attempt.start is None else "running"
