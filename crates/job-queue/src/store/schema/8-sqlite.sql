PRAGMA user_version = 8;

-- A job that waits is claimed from this moment on, also before its limit is reset
-- (not_before), to look whether it still has to wait.
ALTER TABLE codex_jobs ADD COLUMN look_at BIGINT;
UPDATE codex_jobs SET look_at = not_before WHERE not_before IS NOT NULL;
-- When its first wait began, for how many resets it has waited, and how often without a
-- known reset.
ALTER TABLE codex_jobs ADD COLUMN wait_since BIGINT;
ALTER TABLE codex_jobs ADD COLUMN wait_resets BIGINT NOT NULL DEFAULT 0;
ALTER TABLE codex_jobs ADD COLUMN wait_pauses BIGINT NOT NULL DEFAULT 0;
