PRAGMA user_version = 3;

-- Numbers that are given once, by what they are given to.
CREATE TABLE codex_numbers (
    of_what TEXT PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
