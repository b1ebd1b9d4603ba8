UPDATE codex_store SET version = 9;

-- The signature of id and session_id, by the host whose worker has stored the session. NULL
-- for sessions that older programs have stored.
ALTER TABLE codex_jobs ADD COLUMN session_signature TEXT;
