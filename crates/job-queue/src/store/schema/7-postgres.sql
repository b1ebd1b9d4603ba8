UPDATE codex_store SET version = 7;

-- A job in the queue is not claimed before this moment; and why.
ALTER TABLE codex_jobs ADD COLUMN not_before BIGINT;
ALTER TABLE codex_jobs ADD COLUMN waits_for TEXT;
-- How many of its attempts have ended that way. They do not count as attempts.
ALTER TABLE codex_jobs ADD COLUMN waits BIGINT NOT NULL DEFAULT 0;
