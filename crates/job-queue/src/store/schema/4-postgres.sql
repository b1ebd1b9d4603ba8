UPDATE codex_store SET version = 4;

-- Who has submitted a job, and the name of the key of their host. NULL for jobs of
-- programs that noted neither.
ALTER TABLE codex_jobs ADD COLUMN owner TEXT;
-- The role that has inserted the row, noted by the server.
ALTER TABLE codex_jobs ADD COLUMN owner_role TEXT;
ALTER TABLE codex_jobs ADD COLUMN signer TEXT;
-- That host's word that the job is as it was submitted: until it ends, and from then on.
ALTER TABLE codex_jobs ADD COLUMN signature TEXT;
ALTER TABLE codex_jobs ADD COLUMN ended_signature TEXT;
-- Whether credentials in the prompt have been masked.
ALTER TABLE codex_jobs ADD COLUMN masked BIGINT NOT NULL DEFAULT 0;

-- Whatever an inserting statement says, and no update changes it.
CREATE FUNCTION codex_note_role() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.owner_role := session_user;
    ELSE
        NEW.owner_role := OLD.owner_role;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER codex_jobs_role BEFORE INSERT OR UPDATE OF owner_role ON codex_jobs
    FOR EACH ROW EXECUTE FUNCTION codex_note_role();
