//! The one table from the library's errors to what the kernel is told.

use buttery::Error;

/// The errno for an error.
pub fn errno(error: &Error) -> i32 {
    match error {
        Error::NotFound => libc::ENOENT,
        Error::Exists => libc::EEXIST,
        Error::NotDirectory => libc::ENOTDIR,
        Error::IsDirectory => libc::EISDIR,
        Error::NotEmpty => libc::ENOTEMPTY,
        Error::NoSpace => libc::ENOSPC,
        Error::ReadOnly | Error::Aborted => libc::EROFS,
        Error::NameTooLong => libc::ENAMETOOLONG,
        Error::TooManyLinks => libc::EMLINK,
        Error::Invalid => libc::EINVAL,
        Error::Busy => libc::EBUSY,
        Error::NotPermitted => libc::EPERM,
        Error::CrossDevice => libc::EXDEV,
        Error::NoAttribute => libc::ENODATA,
        Error::TooLarge => libc::E2BIG,
        Error::Range => libc::ERANGE,
        Error::FileTooBig => libc::EFBIG,
        Error::Overflow => libc::EOVERFLOW,
        Error::Loop => libc::ELOOP,
        Error::Unsupported(_) => libc::EOPNOTSUPP,
        Error::Corrupt(_) | Error::Io(_) => libc::EIO,
    }
}

/// The errno as the protocol's library takes it; what a person should know of is logged.
pub(crate) fn reply(error: &Error) -> fuser::Errno {
    match error {
        Error::Corrupt(_) | Error::Io(_) => tracing::error!("{error}"),
        Error::Unsupported(_) => tracing::warn!("{error}"),
        _ => {}
    }
    fuser::Errno::from_i32(errno(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_supported_says_so_and_damage_is_an_io_error() {
        assert_eq!(errno(&Error::Unsupported("x".into())), libc::ENOTSUP);
        assert_eq!(errno(&Error::Corrupt("x".into())), libc::EIO);
        assert_eq!(errno(&Error::Aborted), libc::EROFS);
    }
}
