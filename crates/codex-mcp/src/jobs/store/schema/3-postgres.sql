UPDATE codex_store SET version = 3;

-- Numbers that are given once, by what they are given to.
CREATE TABLE codex_numbers (
    of_what TEXT PRIMARY KEY,
    last BIGINT NOT NULL
);
