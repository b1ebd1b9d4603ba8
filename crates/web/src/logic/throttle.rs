//! A pause after wrong secrets.
//!
//! It applies only to further wrong secrets: a right secret is always admitted, so nobody can lock
//! others out by trying.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How many wrong secrets are answered before the pause.
pub const TRIES: u32 = 5;

/// How long the pause is, from the last wrong secret before it.
pub const PAUSE: Duration = Duration::from_secs(60);

/// The most addresses that are remembered. To remember one more, the one whose last attempt is the
/// oldest is forgotten.
const MOST: usize = 1000;

/// The wrong secrets of each address.
#[derive(Debug, Default)]
pub struct Throttle {
    tries: HashMap<IpAddr, FailedAttempts>,
}

#[derive(Debug)]
struct FailedAttempts {
    count: u32,
    last: Instant,
}

/// How long an address has to wait before its next wrong secret is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait(pub Duration);

impl Throttle {
    /// Counts a wrong secret.
    ///
    /// # Errors
    ///
    /// [`Wait`] if there were too many before. The time is not prolonged.
    pub fn wrong(&mut self, from: IpAddr, now: Instant) -> Result<(), Wait> {
        let from = network(from);
        self.tries.retain(|_, tries| now < tries.last + PAUSE);
        if let Some(tries) = self.tries.get_mut(&from) {
            if tries.count >= TRIES {
                return Err(Wait((tries.last + PAUSE).saturating_duration_since(now)));
            }
            *tries = FailedAttempts {
                count: tries.count + 1,
                last: now,
            };
            return Ok(());
        }
        if self.tries.len() >= MOST
            && let Some(oldest) = self.oldest()
        {
            self.tries.remove(&oldest);
        }
        let first = FailedAttempts {
            count: 1,
            last: now,
        };
        self.tries.insert(from, first);
        Ok(())
    }

    fn oldest(&self) -> Option<IpAddr> {
        let all = self.tries.iter();
        all.min_by_key(|(_, tries)| tries.last)
            .map(|(from, _)| *from)
    }
}

/// The address, or for IPv6 its network of 64 bits: one machine can use all addresses of the
/// network.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn five_wrong_secrets_and_then_a_pause() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        for _ in 0..TRIES {
            assert_eq!(throttle.wrong(one, now), Ok(()));
        }
        assert_eq!(throttle.wrong(one, now), Err(Wait(PAUSE)));
        let second = Duration::from_secs(1);
        assert_eq!(throttle.wrong(one, now + second), Err(Wait(PAUSE - second)));
        assert_eq!(throttle.wrong(other, now), Ok(()));
        assert_eq!(throttle.wrong(one, now + PAUSE), Ok(()));
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..TRIES {
            let from = address(&format!("2001:db8::{number}"));
            assert_eq!(throttle.wrong(from, now), Ok(()));
        }
        assert!(throttle.wrong(address("2001:db8::ffff"), now).is_err());
        assert!(throttle.wrong(address("2001:db8:0:1::1"), now).is_ok());
    }

    #[test]
    fn number_of_addresses_is_bounded() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..5000_u32 {
            let from = IpAddr::V4(number.into());
            let _ = throttle.wrong(from, now + Duration::from_millis(number.into()));
        }
        assert_eq!(throttle.tries.len(), MOST);
    }
}
