-- Nobody else changes a job until it is counted, and from then on the triggers see it.
LOCK TABLE codex_jobs IN ACCESS EXCLUSIVE MODE;
UPDATE codex_store SET version = 2;

-- How many jobs there are, in all and of each directory, kept by the triggers below.
-- Those that wait or run are counted together, as 'open': so a claim changes no
-- count. How many run is seen from the indexes, as they are few.
CREATE TABLE codex_counts (
    tool_name TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs BIGINT NOT NULL,
    PRIMARY KEY (tool_name, state)
);

-- A name with folder means a directory. Such names are stored, so they stay.
CREATE TABLE codex_folder_counts (
    cwd TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs BIGINT NOT NULL,
    PRIMARY KEY (cwd, tool_name, state)
);
-- Those that are to be removed: there may be as many directories as jobs.
CREATE INDEX codex_folder_counts_gone ON codex_folder_counts (cwd) WHERE jobs = 0;

-- What is still to be added to the counts: whoever changes a job adds a row here, so
-- that nobody waits for anybody else's transaction as for a count that both change.
CREATE TABLE codex_changes (
    cwd TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs BIGINT NOT NULL
);

CREATE FUNCTION codex_counted(state TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN state IN ('queued', 'running') THEN 'open' ELSE state END $$;

CREATE FUNCTION codex_count_new() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO codex_changes
        SELECT cwd, tool_name, codex_counted(state), COUNT(*) FROM jobs GROUP BY 1, 2, 3;
    RETURN NULL;
END $$;

CREATE FUNCTION codex_count_ended() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO codex_changes VALUES
        (OLD.cwd, OLD.tool_name, codex_counted(OLD.state), -1),
        (NEW.cwd, NEW.tool_name, codex_counted(NEW.state), 1);
    RETURN NULL;
END $$;

CREATE FUNCTION codex_count_gone() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO codex_changes
        SELECT cwd, tool_name, codex_counted(state), -COUNT(*) FROM jobs GROUP BY 1, 2, 3;
    RETURN NULL;
END $$;

CREATE TRIGGER codex_jobs_new AFTER INSERT ON codex_jobs
    REFERENCING NEW TABLE AS jobs FOR EACH STATEMENT EXECUTE FUNCTION codex_count_new();
CREATE TRIGGER codex_jobs_ended AFTER UPDATE OF state ON codex_jobs FOR EACH ROW
    WHEN (codex_counted(OLD.state) <> codex_counted(NEW.state))
    EXECUTE FUNCTION codex_count_ended();
CREATE TRIGGER codex_jobs_gone AFTER DELETE ON codex_jobs
    REFERENCING OLD TABLE AS jobs FOR EACH STATEMENT EXECUTE FUNCTION codex_count_gone();

-- Adds the changes to the counts. One transaction at a time does so, and no other
-- waits for it. The number is ours alone: "codexsum".
CREATE FUNCTION codex_add_up() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(x'636f64657873756d'::bigint) THEN
        RETURN NULL;
    END IF;
    WITH changes AS (
        DELETE FROM codex_changes RETURNING cwd, tool_name, state, jobs
    ), folders AS (
        INSERT INTO codex_folder_counts AS counts
            SELECT cwd, tool_name, state, SUM(jobs) FROM changes GROUP BY 1, 2, 3
            ON CONFLICT (cwd, tool_name, state) DO UPDATE SET jobs = counts.jobs + excluded.jobs
    )
    INSERT INTO codex_counts AS counts
        SELECT tool_name, state, SUM(jobs) FROM changes GROUP BY 1, 2
        ON CONFLICT (tool_name, state) DO UPDATE SET jobs = counts.jobs + excluded.jobs;
    DELETE FROM codex_folder_counts WHERE jobs = 0;
    DELETE FROM codex_counts WHERE jobs = 0;
    RETURN NULL;
END $$;

-- Each 64th statement adds up, so that there is little to add when jobs are counted.
CREATE SEQUENCE codex_changes_made;
CREATE TRIGGER codex_changes_added AFTER INSERT ON codex_changes FOR EACH STATEMENT
    WHEN (nextval('codex_changes_made') % 64 = 0) EXECUTE FUNCTION codex_add_up();

INSERT INTO codex_folder_counts
    SELECT cwd, tool_name, codex_counted(state), COUNT(*) FROM codex_jobs GROUP BY 1, 2, 3;
INSERT INTO codex_counts
    SELECT tool_name, state, SUM(jobs) FROM codex_folder_counts GROUP BY 1, 2;

-- The newest of a directory and state, and those of them of a tool, in the index alone.
DROP INDEX codex_jobs_cwd;
CREATE INDEX codex_jobs_folder ON codex_jobs (cwd, state, seq, tool_name);

-- Whose session it is.
CREATE INDEX codex_jobs_session ON codex_jobs (session_id, seq) WHERE session_id IS NOT NULL;
