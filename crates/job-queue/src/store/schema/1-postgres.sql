-- Moments are milliseconds since 1970. What may be long comes last: it is not read
-- where it isn't asked for.
CREATE TABLE codex_store (version BIGINT NOT NULL);
INSERT INTO codex_store VALUES (1);

CREATE TABLE codex_jobs (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    task_name TEXT NOT NULL,
    agent_source TEXT,
    agent_instance TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    completed_at BIGINT,
    lease_until BIGINT,
    worker TEXT,
    worker_host TEXT,
    attempts BIGINT NOT NULL DEFAULT 0,
    retry BIGINT NOT NULL,
    cancel_requested BIGINT NOT NULL DEFAULT 0,
    run_on TEXT,
    timeout_ms BIGINT NOT NULL,
    tool_timeout_ms BIGINT NOT NULL,
    expose_stream BIGINT NOT NULL,
    fire_and_forget BIGINT NOT NULL,
    continue_latest BIGINT NOT NULL,
    resume_session_id TEXT,
    session_id TEXT,
    exchange_id TEXT,
    host TEXT,
    submitted_by TEXT,
    model_override TEXT,
    sandbox TEXT,
    effort TEXT,
    profile TEXT,
    codex_home TEXT,
    codex_bin TEXT,
    cwd TEXT NOT NULL,
    error TEXT,
    images TEXT NOT NULL,
    output_schema TEXT,
    prompt TEXT NOT NULL,
    result TEXT
);

-- The queue.
CREATE INDEX codex_jobs_queued ON codex_jobs (seq) WHERE state = 'queued';
-- Leases.
CREATE INDEX codex_jobs_running ON codex_jobs (lease_until) WHERE state = 'running';
-- Lists, and how many there are in all.
CREATE INDEX codex_jobs_state ON codex_jobs (state, seq);
CREATE INDEX codex_jobs_tool ON codex_jobs (tool_name, state, seq);
CREATE INDEX codex_jobs_cwd ON codex_jobs (cwd, seq);

CREATE TABLE codex_events (
    job BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (job, sequence)
);

CREATE TABLE codex_workers (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    concurrency BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL
);
