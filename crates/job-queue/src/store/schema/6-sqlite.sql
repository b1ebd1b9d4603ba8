PRAGMA user_version = 6;

-- Codex's open questions in jobs that run. They count while the attempt runs that has
-- written them.
CREATE TABLE codex_questions (
    job BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    id TEXT NOT NULL,
    asked_at BIGINT NOT NULL,
    -- The worker's word that Codex asks this.
    signature TEXT NOT NULL,
    question TEXT NOT NULL,
    PRIMARY KEY (job, attempt, id)
) WITHOUT ROWID;

-- Instructions to the worker of a job that runs: answers to questions, and words for the
-- turn. Their data is removed when the worker has said what came of them.
CREATE TABLE codex_instructions (
    id TEXT PRIMARY KEY,
    job BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    -- The question that it answers.
    question TEXT,
    taken BIGINT NOT NULL DEFAULT 0,
    outcome TEXT,
    signature TEXT NOT NULL,
    data TEXT NOT NULL
);
-- A question has one answer at a time.
CREATE UNIQUE INDEX codex_instructions_answers ON codex_instructions (job, attempt, question)
    WHERE question IS NOT NULL AND outcome IS NULL;
CREATE INDEX codex_instructions_new ON codex_instructions (job) WHERE taken = 0;
CREATE INDEX codex_instructions_job ON codex_instructions (job);
