-- What format 2 adds to the tables of format 1. It is run on a new log, and on a log of format 1 that becomes one of format 2.

CREATE TABLE dropped (
    hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
    size INTEGER NOT NULL,
    reason TEXT NOT NULL CHECK (reason IN ('compacted', 'lost', 'checkpointed')),
    at_ms INTEGER NOT NULL
);
CREATE TRIGGER dropped_no_update BEFORE UPDATE ON dropped BEGIN SELECT RAISE (ABORT, 'what was dropped stays on record'); END;
CREATE TRIGGER dropped_no_delete BEFORE DELETE ON dropped BEGIN SELECT RAISE (ABORT, 'what was dropped stays on record'); END;

CREATE TABLE pin (
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (stream, seq),
    FOREIGN KEY (stream, seq) REFERENCES event (stream, seq)
);

CREATE UNIQUE INDEX event_request ON event (stream, json_extract(payload, '$.request_id')) WHERE kind = 'input_admitted';

-- A stream with an origin holds the events of another log, verified, and takes no more.
CREATE TRIGGER stream_imported BEFORE UPDATE ON stream WHEN OLD.origin_log IS NOT NULL
BEGIN SELECT RAISE (ABORT, 'an imported stream is read-only'); END;
CREATE TRIGGER event_imported BEFORE INSERT ON event
WHEN EXISTS (SELECT 1 FROM stream WHERE id = NEW.stream AND origin_log IS NOT NULL AND head_seq < NEW.seq)
BEGIN SELECT RAISE (ABORT, 'an imported stream is read-only'); END;

-- For people who query by hand.
CREATE VIEW v_calls AS
SELECT
    started.stream AS stream,
    json_extract(started.payload, '$.call') AS call,
    json_extract(started.payload, '$.attempt') AS attempt,
    json_extract(started.payload, '$.tool') AS tool,
    json_extract(started.payload, '$.input') AS input,
    started.seq AS started_seq,
    settled.seq AS settled_seq,
    json_extract(settled.payload, '$.ended') AS ended,
    json_extract(settled.payload, '$.label') AS decision,
    json_extract(settled.payload, '$.exit') AS exit,
    json_extract(settled.payload, '$.root') AS root,
    (SELECT count(*) FROM image_change WHERE stream = settled.stream AND seq = settled.seq) AS changes,
    json_extract(settled.payload, '$.at_ms') - json_extract(started.payload, '$.at_ms') AS duration_ms
FROM event AS started
LEFT JOIN event AS settled
    ON settled.stream = started.stream AND settled.kind = 'call_settled' AND settled.seq > started.seq
    AND json_extract(settled.payload, '$.call') = json_extract(started.payload, '$.call')
    AND json_extract(settled.payload, '$.attempt') = json_extract(started.payload, '$.attempt')
WHERE started.kind = 'attempt_started';

CREATE VIEW v_recoveries AS
SELECT
    decided.stream AS stream,
    decided.seq AS seq,
    decided.epoch AS epoch,
    json_extract(decided.payload, '$.label') AS label,
    json_extract(decided.payload, '$.call') AS call,
    json_extract(decided.payload, '$.attempt') AS attempt,
    json_extract(decided.payload, '$.obligation') AS obligation,
    finished.seq AS finished_seq,
    json_extract(finished.payload, '$.restored') AS restored,
    json_extract(finished.payload, '$.displaced') AS displaced,
    json_extract(finished.payload, '$.root') AS root
FROM event AS decided
LEFT JOIN event AS finished
    ON finished.stream = decided.stream AND finished.kind = 'restore_finished'
    AND json_extract(finished.payload, '$.decision_seq') = decided.seq
WHERE decided.kind = 'recovery_decided';
