//! Images damaged on purpose.
