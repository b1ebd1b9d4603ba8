//! Returns unused memory of this process to the system.

/// Returns freed memory that the C library has kept. By itself, the library returns only free
/// memory at the end of its heap, and blocks of different sizes leave gaps. So a process that runs
/// for weeks would grow to its largest need ever, and beyond. This takes about a millisecond for 10
/// MiB. Source: `malloc_trim(3)`.
///
/// C libraries other than glibc return memory by themselves.
pub fn release_unused() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time from any thread: it takes the locks of the allocator, and
    // gives back only pages in which no block is in use.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// The anonymous memory of this process, in KiB.
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel writes it, and it has an end"
    )]
    fn anonymous() -> usize {
        let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let mut lines = rollup.lines();
        let line = lines.find_map(|line| line.strip_prefix("Anonymous:"));
        let number = line.unwrap().trim().trim_end_matches(" kB");
        number.parse().unwrap()
    }

    #[test]
    fn gaps_between_blocks_are_given_back() {
        let mut blocks: Vec<Option<Vec<u8>>> = (0..2000).map(|_| Some(vec![1; 16 << 10])).collect();
        // Every 100th block stays, so that the heap cannot shrink at its end.
        for (index, block) in blocks.iter_mut().enumerate() {
            if index % 100 != 99 {
                *block = None;
            }
        }
        let before = anonymous();
        release_unused();
        let released = before.saturating_sub(anonymous());
        assert!(released > 16 << 10, "{released} KiB of {before} KiB");
        assert_eq!(blocks.iter().flatten().count(), 20);
    }
}
