PRAGMA user_version = 5;

-- What a call says beside the fields of the contract, as JSON; NULL where it says nothing.
ALTER TABLE codex_jobs ADD COLUMN settings TEXT;
