//! Locking a mutex that a panic may have poisoned.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also a poisoned one.
///
/// A mutex is poisoned when a thread has panicked while it held the lock. That is right for data
/// that may be half changed. Use this function where the data are valid at every point, so that
/// the panic of one thread does not make all others panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
