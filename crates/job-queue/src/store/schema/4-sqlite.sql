PRAGMA user_version = 4;

-- Who has submitted a job, and the name of the key of their host. NULL for jobs of
-- programs that noted neither.
ALTER TABLE codex_jobs ADD COLUMN owner TEXT;
-- Of a server only.
ALTER TABLE codex_jobs ADD COLUMN owner_role TEXT;
ALTER TABLE codex_jobs ADD COLUMN signer TEXT;
-- That host's word that the job is as it was submitted: until it ends, and from then on.
ALTER TABLE codex_jobs ADD COLUMN signature TEXT;
ALTER TABLE codex_jobs ADD COLUMN ended_signature TEXT;
-- Whether credentials in the prompt have been masked.
ALTER TABLE codex_jobs ADD COLUMN masked BIGINT NOT NULL DEFAULT 0;
