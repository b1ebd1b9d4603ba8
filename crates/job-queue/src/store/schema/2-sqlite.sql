PRAGMA user_version = 2;

-- How many jobs there are, in all and of each directory, kept by the triggers below.
-- Those that wait or run are counted together, as 'open': so a claim changes no
-- count. How many run is seen from the index of leases, as they are few.
CREATE TABLE codex_counts (
    tool_name TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs BIGINT NOT NULL,
    PRIMARY KEY (tool_name, state)
) WITHOUT ROWID;

-- A name with folder means a directory. Such names are stored, so they stay.
CREATE TABLE codex_folder_counts (
    cwd TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs BIGINT NOT NULL,
    PRIMARY KEY (cwd, tool_name, state)
) WITHOUT ROWID;

-- What PostgreSQL adds to the counts later is added at once here, where there is
-- one writer: this is always empty.
CREATE VIEW codex_changes (cwd, tool_name, state, jobs) AS SELECT '', '', '', 0 WHERE FALSE;

CREATE TRIGGER codex_changes_counted INSTEAD OF INSERT ON codex_changes BEGIN
    INSERT INTO codex_counts VALUES (NEW.tool_name, NEW.state, NEW.jobs)
        ON CONFLICT (tool_name, state) DO UPDATE SET jobs = jobs + excluded.jobs;
    INSERT INTO codex_folder_counts VALUES (NEW.cwd, NEW.tool_name, NEW.state, NEW.jobs)
        ON CONFLICT (cwd, tool_name, state) DO UPDATE SET jobs = jobs + excluded.jobs;
    DELETE FROM codex_counts
        WHERE tool_name = NEW.tool_name AND state = NEW.state AND jobs = 0;
    DELETE FROM codex_folder_counts
        WHERE cwd = NEW.cwd AND tool_name = NEW.tool_name AND state = NEW.state AND jobs = 0;
END;

CREATE TRIGGER codex_jobs_new AFTER INSERT ON codex_jobs BEGIN
    INSERT INTO codex_changes VALUES (NEW.cwd, NEW.tool_name,
        CASE WHEN NEW.state IN ('queued', 'running') THEN 'open' ELSE NEW.state END, 1);
END;

CREATE TRIGGER codex_jobs_ended AFTER UPDATE OF state ON codex_jobs
WHEN CASE WHEN OLD.state IN ('queued', 'running') THEN 'open' ELSE OLD.state END
    <> CASE WHEN NEW.state IN ('queued', 'running') THEN 'open' ELSE NEW.state END
BEGIN
    INSERT INTO codex_changes VALUES (OLD.cwd, OLD.tool_name,
        CASE WHEN OLD.state IN ('queued', 'running') THEN 'open' ELSE OLD.state END, -1);
    INSERT INTO codex_changes VALUES (NEW.cwd, NEW.tool_name,
        CASE WHEN NEW.state IN ('queued', 'running') THEN 'open' ELSE NEW.state END, 1);
END;

CREATE TRIGGER codex_jobs_gone AFTER DELETE ON codex_jobs BEGIN
    INSERT INTO codex_changes VALUES (OLD.cwd, OLD.tool_name,
        CASE WHEN OLD.state IN ('queued', 'running') THEN 'open' ELSE OLD.state END, -1);
END;

INSERT INTO codex_folder_counts
    SELECT cwd, tool_name,
        CASE WHEN state IN ('queued', 'running') THEN 'open' ELSE state END, COUNT(*)
    FROM codex_jobs GROUP BY 1, 2, 3;
INSERT INTO codex_counts
    SELECT tool_name, state, SUM(jobs) FROM codex_folder_counts GROUP BY 1, 2;

-- The newest of a directory and state, and those of them of a tool, in the index alone.
DROP INDEX codex_jobs_cwd;
CREATE INDEX codex_jobs_folder ON codex_jobs (cwd, state, seq, tool_name);

-- Whose session it is.
CREATE INDEX codex_jobs_session ON codex_jobs (session_id, seq) WHERE session_id IS NOT NULL;
