-- What no framework has a place for: every record of the log, what was refused and lost included.
CREATE TABLE foldlog_events (
  session_id TEXT NOT NULL,
  "partition" INTEGER NOT NULL,
  at_offset INTEGER NOT NULL,
  logged_at TEXT,
  type TEXT NOT NULL,
  writer TEXT NOT NULL,
  verdict TEXT NOT NULL CHECK (verdict IN ('accepted', 'ignored', 'refused')),
  code TEXT,
  fields TEXT NOT NULL CHECK (json_valid(fields)),
  PRIMARY KEY ("partition", at_offset)
) WITHOUT ROWID;
CREATE INDEX foldlog_events_session_idx ON foldlog_events (session_id, at_offset);
