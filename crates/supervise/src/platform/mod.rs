//! Process control that only Linux has, and the substitutes on other systems.
//!
//! | on Linux | elsewhere |
//! | --- | --- |
//! | The guard is the subreaper of all below it, and finds them in `/proc`. It kills its children in a loop, which ends chains of processes that each start the next one and end. | The guard ends the process group of the program, and what `ps` lists below it; a process in another group that has lost its parent before stays. |
//! | The system signals the end of a parent. | The guard checks each second whether its owner lives. A program whose guard was killed is left. |
//! | `/proc/self/exe` is this program even after an upgrade. | The path at which it was started. |
//! | Both ends of a connection compare their confinement. | The [proof](crate::proof) alone decides. |
//! | The path of a socket may have any length. | 100 bytes at most. |
//! | `/proc` reports the umask. | The umask is set for a moment to read it. |
//!
//! `--cfg portable` selects the code for other systems on Linux too, so that it can be tested
//! there.

#[cfg(all(target_os = "linux", not(portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(portable))))]
mod portable;

#[cfg(all(target_os = "linux", not(portable)))]
pub(crate) use linux::*;
#[cfg(not(all(target_os = "linux", not(portable))))]
pub(crate) use portable::*;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a program that prints its umask and ends"
    )]
    fn umask_is_that_of_programs() {
        let shell = std::process::Command::new("sh")
            .args(["-c", "umask"])
            .output()
            .unwrap();
        let printed = String::from_utf8(shell.stdout).unwrap();
        let number = |octal: &str| u32::from_str_radix(octal.trim(), 8).unwrap();
        assert_eq!(number(&umask()), number(&printed));
    }
}
