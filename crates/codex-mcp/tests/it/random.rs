//! Random numbers for tests, from a seed that repeats them.

use std::time::SystemTime;

/// The seed, to repeat the choices of an earlier run.
const SEED: &str = "CODEX_MCP_TEST_SEED";

/// Random numbers (xorshift, see Marsaglia 2003).
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of one stream. Each stream of a seed has other numbers, so that several threads can
    /// choose by one seed.
    pub(crate) fn seeded(stream: &str) -> Self {
        let seed = match std::env::var(SEED) {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => by_time(stream),
        };
        Self::of(seed, stream)
    }

    fn of(seed: u64, stream: &str) -> Self {
        // FNV-1a.
        let mixed = stream.bytes().fold(seed, |mixed, byte| {
            (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // The generator stays at 0.
        Self(mixed.max(1))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A seed from the clock, which a failed test shows.
#[expect(clippy::print_stderr, reason = "a failed test shows it")]
fn by_time(stream: &str) -> u64 {
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    eprintln!("the seed of {stream} is {seed}");
    seed
}

#[test]
fn streams_of_one_seed_differ_and_can_be_repeated() {
    let numbers = |seed, stream| {
        let mut random = Random::of(seed, stream);
        [(); 8].map(|()| random.below(u64::MAX))
    };
    for seed in [1, 2, 1_795_000_000] {
        let [storm, disk] = ["storm", "disk"].map(|stream| numbers(seed, stream));
        assert_ne!(storm, disk);
        assert_eq!(storm, numbers(seed, "storm"));
        assert_ne!(storm, numbers(seed + 1, "storm"));
    }
}
