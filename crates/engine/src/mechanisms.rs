//! Which form of each of the data path's mechanisms an engine uses.
//!
//! The default of each is what a user wants. The other form is code that somebody else calls too; it can be chosen here
//! so that one can be measured against the other in one run.

/// The forms in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mechanisms {
    /// How a write in place learns whether its range has checksums.
    pub nocow_check: NocowCheck,
    /// How a new extent takes the place of others.
    pub replace: Replace,
    /// Where data are summed.
    pub csum_submit: CsumSubmit,
    /// How often a read searches the checksum tree.
    pub read_lookup: ReadLookup,
}

/// How a write in place learns whether its range has checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NocowCheck {
    /// [`any_in_range`](crate::csum::any_in_range): the first item that overlaps it answers.
    #[default]
    AnyInRange,
    /// [`lookup`](crate::csum::lookup): as a read does, which needs the checksums themselves.
    Lookup,
}

/// How a new extent takes the place of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replace {
    /// Under one descent, where one leaf holds all that changes.
    #[default]
    Fused,
    /// Dropping, then inserting, as over several leaves.
    DropAndInsert,
}

/// Where data are summed and submitted (`csum_submit=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CsumSubmit {
    /// By the writer where the checksum is fast on this machine, the write small, or somebody waits for it; else by
    /// workers.
    #[default]
    Auto,
    /// By the writer.
    Inline,
    /// By workers, in pieces, in whatever order; never on a zoned device.
    Offload,
}

/// How often a read searches the checksum tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadLookup {
    /// Once for all of it.
    #[default]
    Whole,
    /// For each sector, as a reader that takes one at a time.
    Sector,
}
