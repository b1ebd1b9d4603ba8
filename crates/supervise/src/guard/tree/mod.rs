//! The processes below a guard.

#[cfg(all(target_os = "linux", not(portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(portable))))]
mod portable;

#[cfg(all(target_os = "linux", not(portable)))]
pub(super) use linux::Tree;
#[cfg(not(all(target_os = "linux", not(portable))))]
pub(super) use portable::Tree;
