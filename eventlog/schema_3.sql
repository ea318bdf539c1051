-- What format 3 has in place of what formats 1 and 2 have. It is run on a new log behind their statements, and on a log of format 2 that
-- becomes one of format 3. The rows of `image_change` are kept in the tree of their primary key besides (WITHOUT ROWID).

-- One trigger for what an append does to a stream's row, where there were three: each costs every append its time.
DROP TRIGGER stream_floor;
DROP TRIGGER stream_head;
DROP TRIGGER stream_imported;
CREATE TRIGGER stream_advance BEFORE UPDATE ON stream
WHEN NEW.floor < OLD.floor OR NEW.head_seq <> OLD.head_seq + 1 OR NEW.id <> OLD.id OR OLD.origin_log IS NOT NULL
BEGIN
    SELECT RAISE (ABORT, 'an imported stream is read-only') WHERE OLD.origin_log IS NOT NULL;
    SELECT RAISE (ABORT, 'a floor never falls') WHERE NEW.floor < OLD.floor;
    SELECT RAISE (ABORT, 'a head moves by one');
END;

-- An imported stream has an @ in its name, and a session has none: only for the former is the stream's row looked up.
CREATE TRIGGER stream_named BEFORE INSERT ON stream WHEN NEW.origin_log IS NOT NULL AND instr(NEW.id, '@') = 0
BEGIN SELECT RAISE (ABORT, 'an imported stream has an @ in its name'); END;
DROP TRIGGER event_imported;
CREATE TRIGGER event_imported BEFORE INSERT ON event
WHEN instr(NEW.stream, '@') AND EXISTS (SELECT 1 FROM stream WHERE id = NEW.stream AND origin_log IS NOT NULL AND head_seq < NEW.seq)
BEGIN SELECT RAISE (ABORT, 'an imported stream is read-only'); END;
