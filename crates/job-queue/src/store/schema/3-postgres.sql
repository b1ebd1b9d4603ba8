UPDATE codex_store SET version = 3;

-- Numbers that are given once, by what they are given to.
CREATE TABLE codex_numbers (
    of_what TEXT PRIMARY KEY,
    last BIGINT NOT NULL
);

-- What is wanted of a run, as JSON; NULL for any other job.
ALTER TABLE codex_jobs ADD COLUMN run TEXT;
