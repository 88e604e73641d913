"""The tables of the store. What is private is called so; the checksums are `integrity.py`'s."""

SCHEMA = 5
TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE spaces (name TEXT PRIMARY KEY, policy TEXT NOT NULL, chain TEXT NOT NULL,
                     checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (id INTEGER PRIMARY KEY, space TEXT NOT NULL, name TEXT NOT NULL, last_step INTEGER,
                      total REAL NOT NULL, memory BLOB, belief BLOB, private_state INTEGER NOT NULL,
                      private_pending_step INTEGER, private_pending_symbol INTEGER NOT NULL,
                      private_faults INTEGER NOT NULL, private_excess REAL NOT NULL, private_mark REAL NOT NULL,
                      private_pending_point BLOB, serial INTEGER NOT NULL, checksum INTEGER NOT NULL,
                      private_drift BLOB, UNIQUE (space, name));
CREATE TABLE releases (step INTEGER NOT NULL, stream INTEGER NOT NULL, total REAL NOT NULL, message BLOB,
                       checksum INTEGER NOT NULL, PRIMARY KEY (step, stream)) WITHOUT ROWID;
CREATE TABLE outbox (id INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE private_unhandled (id INTEGER PRIMARY KEY, reason TEXT NOT NULL, length INTEGER NOT NULL,
                                sha256 TEXT NOT NULL);
CREATE TABLE private_counts (reason TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE probe (filling BLOB)
"""
SELECT_STREAM = (
    "SELECT space, name, id, last_step, total, memory, belief, private_state, private_pending_step, "
    "private_pending_symbol, private_faults, private_excess, private_mark, private_pending_point, private_drift, "
    "serial, checksum FROM streams "
)
KNOWN = "substr(name, 1, 1) <> char(1)"  # not forgotten: see `seal.tomb`
NEW_STREAM = "INSERT INTO streams VALUES (NULL, ?, ?, NULL, 0, NULL, NULL, -1, NULL, -1, 0, 0, 0, NULL, 0, 0, NULL)"
UPDATE_STREAM = (
    "UPDATE streams SET last_step = ?, total = ?, memory = ?, belief = ?, private_state = ?, private_pending_step = ?, "
    "private_pending_symbol = ?, private_faults = ?, private_excess = ?, private_mark = ?, private_pending_point = ?, "
    "private_drift = ?, serial = ?, checksum = ? WHERE id = ?"
)
