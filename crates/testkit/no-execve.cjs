// Node before 22.15 has no such function.
delete process.execve;
