CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);

CREATE TABLE stream (
    id TEXT PRIMARY KEY,
    parent TEXT,
    forked_at INTEGER,
    floor INTEGER NOT NULL CHECK (floor >= 0),
    head_seq INTEGER NOT NULL CHECK (head_seq >= 0),
    head_hash BLOB NOT NULL CHECK (length(head_hash) = 32),
    origin_log TEXT,
    origin_stream TEXT
);

CREATE TABLE event (
    stream TEXT NOT NULL REFERENCES stream (id),
    seq INTEGER NOT NULL,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    epoch INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT NOT NULL,
    prev_hash BLOB NOT NULL CHECK (length(prev_hash) = 32),
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (stream, seq)
);
CREATE INDEX event_driver ON event (stream, seq) WHERE kind = 'driver_started';

CREATE TABLE image_change (
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    path BLOB NOT NULL,
    op TEXT NOT NULL CHECK (op IN ('put', 'del', 'times')),
    kind TEXT NOT NULL,
    mode INTEGER NOT NULL,
    content BLOB,
    size INTEGER NOT NULL,
    target BLOB,
    link BLOB,
    xattrs BLOB,
    uid INTEGER,
    gid INTEGER,
    acl BLOB,
    mtime_ns INTEGER NOT NULL,
    PRIMARY KEY (stream, seq, idx),
    FOREIGN KEY (stream, seq) REFERENCES event (stream, seq)
) WITHOUT ROWID;

CREATE TABLE blob (
    hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
    codec TEXT NOT NULL CHECK (codec IN ('raw', 'zstd', 'chunks')),
    size INTEGER NOT NULL,
    bytes BLOB NOT NULL
);

CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;
CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;
CREATE TRIGGER change_no_update BEFORE UPDATE ON image_change BEGIN SELECT RAISE (ABORT, 'changes are append-only'); END;
CREATE TRIGGER change_no_delete BEFORE DELETE ON image_change BEGIN SELECT RAISE (ABORT, 'changes are append-only'); END;
CREATE TRIGGER blob_no_update BEFORE UPDATE ON blob BEGIN SELECT RAISE (ABORT, 'blobs are append-only'); END;
CREATE TRIGGER blob_no_delete BEFORE DELETE ON blob BEGIN SELECT RAISE (ABORT, 'blobs are append-only'); END;
CREATE TRIGGER meta_no_update BEFORE UPDATE ON meta BEGIN SELECT RAISE (ABORT, 'meta is append-only'); END;
CREATE TRIGGER meta_no_delete BEFORE DELETE ON meta BEGIN SELECT RAISE (ABORT, 'meta is append-only'); END;
CREATE TRIGGER stream_no_delete BEFORE DELETE ON stream BEGIN SELECT RAISE (ABORT, 'streams are never deleted'); END;
CREATE TRIGGER stream_floor BEFORE UPDATE ON stream WHEN NEW.floor < OLD.floor
BEGIN SELECT RAISE (ABORT, 'a floor never falls'); END;
CREATE TRIGGER stream_head BEFORE UPDATE ON stream WHEN NEW.head_seq <> OLD.head_seq + 1 OR NEW.id <> OLD.id
BEGIN SELECT RAISE (ABORT, 'a head moves by one'); END;
