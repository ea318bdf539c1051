"""`eventlog doctor`: everything that is wrong with a log, from its files to its last blob, on a private copy. It changes nothing."""

import tempfile
from collections.abc import Iterator

from eventlog.anchor import Anchor, check_anchor, check_owner
from eventlog.connection import advise_doctor
from eventlog.copying import copy_log
from eventlog.diagnosis import Diagnosis, Harm, can_be_opened, describe_uses, judge_files
from eventlog.errors import BusyError, CorruptError, LogMissingError
from eventlog.examination import examine
from eventlog.findings import Finding
from eventlog.ports import Clock
from eventlog.reader import Reader
from eventlog.show import as_word, show_text
from eventlog.values import StreamId
from eventlog.verify import Verified, verify
from eventlog.verify_blobs import find_uses
from eventlog.verify_memory import remembered_anchor

NAMED_USES = 5
NAMED_CONTENTS = 50
"""How many missing contents are told with what needs them; the rest are counted."""


def examine_log(path: str, clock: Clock, anchor: Anchor | None = None, anchor_path: str = "") -> list[Diagnosis]:
    """All that can be said of the log at `path`, the worst kinds as they are met. Raises MisuseError for an anchor of another log."""
    facts = examine(path, clock)
    found = list(judge_files(facts))
    if can_be_opened(facts):
        inside = _judge_inside(path, anchor, anchor_path)
        is_told = any(one.kind == "not_a_log" for one in found) and [one.kind for one in inside] == ["cannot_be_opened"]
        found += [] if is_told else inside
    return found


def _judge_inside(path: str, anchor: Anchor | None, anchor_path: str) -> list[Diagnosis]:
    name = show_text(path)
    with tempfile.TemporaryDirectory(prefix="eventlog-") as directory:
        try:
            reader = Reader.open(copy_log(path, directory), name=name)
        except BusyError as error:
            return [Diagnosis("locked", str(error), name, "nothing lost", "wait until its driver rests, and look again")]
        except (CorruptError, LogMissingError) as error:
            said = _in_place(str(error), directory, path).removesuffix(advise_doctor(name))  # whoever reads this has run it
            what = f"the log cannot be opened: {said}"
            return [Diagnosis("cannot_be_opened", what, name, "events lost", _repair(name))]
        try:
            if anchor is not None:
                check_owner(anchor, reader, anchor_path)
            return list(_judge_opened(reader, path, anchor))
        finally:
            reader.close()


def _in_place(text: str, directory: str, path: str) -> str:
    """A message about the private copy, as one about the log."""
    return text.replace(show_text(f"{directory}/log.sqlite"), show_text(path))


def _judge_opened(reader: Reader, path: str, anchor: Anchor | None) -> Iterator[Diagnosis]:
    name = show_text(path)
    found = verify(reader)
    contents = [finding for finding in found.findings if finding.kind == "content"]
    for finding in found.findings:
        if finding.kind != "content":
            yield _judge_finding(reader, finding, found, name)
    yield from _judge_contents(reader, contents, name)
    try:
        cut = list(check_anchor(reader, anchor)) if anchor is not None else []
        remembered = remembered_anchor(path)
        if remembered is not None and remembered.log_id == reader.log_id and not cut:
            cut = list(check_anchor(reader, remembered, "`verify --since`"))
    except CorruptError as error:
        cut = [Finding("stream table", str(error))]
    for finding in cut:
        advice = "look for its -wal or a newer copy; what is here is sound by itself, and the ledger may know more: `recovery plan`"
        yield Diagnosis("cut_tail", finding.what, finding.where, "events lost", advice)
    yield from _judge_dropped(reader, found, name)


def _judge_finding(reader: Reader, finding: Finding, found: Verified, name: str) -> Diagnosis:
    harm: Harm = "events lost"
    if finding.kind == "database" and finding.where not in ("stream table",):
        harm = "some content lost" if finding.where == "blob table" else "nothing lost"
    elif finding.kind == "chain" and finding.stream is not None and not _loses_events(reader, finding.stream, found):
        harm = "nothing lost"
    kinds = {"database": "damaged", "chain": "broken_chain", "image": "broken_chain", "fork": "broken_chain", "tail": "cut_tail"}
    return Diagnosis(kinds.get(finding.kind, "damaged"), finding.what, finding.where, harm, _repair(name))


def _loses_events(reader: Reader, stream: StreamId, found: Verified) -> bool:
    """Whether a stream has events beyond those that are sound: a spoilt cache row alone loses none."""
    head = found.mark.heads.get(stream)
    try:
        newest = reader.rows("SELECT max(seq) FROM event WHERE stream = ?", (stream,))[0][0]
    except CorruptError:
        return True
    return head is None or newest != head.position.seq


def _judge_contents(reader: Reader, findings: list[Finding], name: str) -> Iterator[Diagnosis]:
    for finding in findings[:NAMED_CONTENTS]:
        which = finding.where
        if finding.content is not None:
            try:
                which = f"content {finding.content.hex()}, {describe_uses(find_uses(reader, finding.content, NAMED_USES))}"
            except CorruptError:
                which = f"content {finding.content.hex()}, what needs it cannot be read"
        yield Diagnosis("missing_content", finding.what, which, "some content lost", _repair(name))
    rest = len(findings) - NAMED_CONTENTS
    if rest > 0:
        yield Diagnosis("missing_content", f"{rest} more contents are damaged or missing", name, "some content lost", _repair(name))


def _judge_dropped(reader: Reader, found: Verified, name: str) -> Iterator[Diagnosis]:
    if reader.is_beyond_1:
        try:
            rows = reader.rows("SELECT reason, count(*), total(size) FROM dropped GROUP BY reason ORDER BY reason")
        except CorruptError:
            rows = []  # the table is damaged, and verify says so
        for reason, count, size in rows:
            total = int(float(str(size)))
            what = f"{count} contents of {total} bytes were given up on record ({reason}); images say so by name"
            harm: Harm = "nothing lost" if reason in ("compacted", "checkpointed") else "some content lost"
            advice = "nothing to do: they may be in a bundle or in a copy made before"
            if reason == "checkpointed":
                what = f"{count} contents of {total} bytes are not in the log but in the checkpoint store of its session"
                advice = "nothing to do: keep the store with the log; `recovery checkpoints verify` proves what is in it"
            yield Diagnosis("given_up", what, name, harm, advice, is_problem=False)
    if found.orphans:
        what = f"{found.orphans} blobs that no event needs take {found.orphan_bytes} bytes; a crashed append leaves such"
        yield Diagnosis("orphans", what, name, "nothing lost", f"`eventlog compact {as_word(name)}` takes them back", is_problem=False)


def _repair(name: str) -> str:
    return f"keep a copy of all its files, then `eventlog doctor {as_word(name)} --repair NEWFILE`; if the device is failing, copy it first"
