//! Mount options, by the kernel's names.

use buttery_codec::Method;
use buttery_engine::file::write::Compress;
use buttery_engine::space::Media;
use buttery_engine::{CsumSubmit, MAX_INLINE, Mechanisms, Rescue};
use std::fmt;

/// How to open a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// No byte is written.
    pub read_only: bool,
    /// The path of the directory to show as the root, from the top-level subvolume on.
    pub subvol: Option<Vec<u8>>,
    /// The id of the subvolume to show as the root.
    pub subvolid: Option<u64>,
    /// Devices may be missing.
    pub degraded: bool,
    /// What to put up with on a damaged file system.
    pub rescue: Rescue,
    /// Where the device begins in the file, in bytes.
    pub offset: u64,
    /// How large the device is, in bytes.
    pub size_limit: Option<u64>,
    /// Which copy of the superblock to read.
    pub super_copy: usize,
    /// Seconds between commits.
    pub commit_secs: u64,
    /// Bytes of clean tree blocks to keep in memory.
    pub cache_bytes: u64,
    /// New files are NODATACOW (and NODATASUM).
    pub nodatacow: bool,
    /// New files are NODATASUM.
    pub nodatasum: bool,
    /// New data are compressed (`compress=`, `compress-force=`).
    pub compress: Option<Compress>,
    /// Which forms of the data path's mechanisms to use (`csum_submit=`; the others are for measuring).
    pub mechanisms: Mechanisms,
    /// The largest file, in bytes, that is kept in its item; never as much as a sector, nor more than fits into a leaf.
    pub max_inline: u64,
    /// What the file system lies on (`ssd`, `nossd`, `ssd_spread`); the devices tell if absent.
    pub media: Option<Media>,
    /// How many requests a mount serves at a time; twice as many as there are processors if absent.
    pub thread_pool: Option<usize>,
    /// The kernel may hold buffered writes back on a mount.
    pub writeback_cache: bool,
    /// Discard freed space.
    pub discard: bool,
    /// Other users may use the mount.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// The time that every change gets; the clock's if absent.
    pub clock: Option<crate::Time>,
    /// Options that are accepted and have no effect here, for a message.
    pub ignored: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_only: false,
            subvol: None,
            subvolid: None,
            degraded: false,
            rescue: Rescue::default(),
            offset: 0,
            size_limit: None,
            super_copy: 0,
            commit_secs: 30,
            cache_bytes: 256 << 20,
            nodatacow: false,
            nodatasum: false,
            compress: None,
            mechanisms: Mechanisms::default(),
            max_inline: MAX_INLINE,
            media: None,
            thread_pool: None,
            writeback_cache: false,
            discard: false,
            allow_other: false,
            default_permissions: false,
            clock: None,
            ignored: Vec::new(),
        }
    }
}

/// An option that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError(String);

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionsError {}

/// The most threads that a mount gets.
const THREADS_MAX: u64 = 64;

/// Kernel options that change nothing that a user of a mount could rely on, and are accepted.
const ACCEPTED: &[&str] = &[
    "rw",
    "defaults",
    "noatime",
    "relatime",
    "nodiratime",
    "norelatime",
    "strictatime",
    "lazytime",
    "datacow",
    "datasum",
    "barrier",
    "space_cache",
    "nodiscard",
    "noacl",
    "acl",
    "treelog",
    "flushoncommit",
    "noflushoncommit",
    "enospc_debug",
    "noenospc_debug",
    "noautodefrag",
    "norescan_uuid_tree",
    "skip_balance",
    "fatal_errors",
    "nouser_subvol_rm_allowed",
    "metadata_ratio",
    "exec",
    "noexec",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nofail",
    "_netdev",
    "async",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "silent",
    "loud",
];

/// Kernel options that are not supported yet, refused by name.
const REFUSED: &[&str] = &[
    "autodefrag",
    "clear_cache",
    "nospace_cache",
    "inode_cache",
    "check_int",
    "check_int_data",
    "check_int_print_mask",
    "rescan_uuid_tree",
    "usebackuproot",
    "recovery",
    "nologreplay",
    "norecovery",
    "notreelog",
    "nobarrier",
    "user_subvol_rm_allowed",
    "device",
    "fragment",
    "ref_verify",
    "sync",
    "dirsync",
    "remount",
    "subvolrootid",
    "alloc_start",
];

impl Options {
    /// Adds a comma-separated list of options, as after `-o`.
    pub fn parse(&mut self, list: &str) -> Result<(), OptionsError> {
        list.split(',').filter(|o| !o.is_empty()).try_for_each(|option| self.parse_one(option))
    }

    fn parse_one(&mut self, option: &str) -> Result<(), OptionsError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let needed = || value.ok_or_else(|| OptionsError(format!("option {name} needs a value")));
        match name {
            "ro" => self.read_only = true,
            "subvol" => self.subvol = Some(needed()?.as_bytes().to_vec()),
            "subvolid" => {
                let id = number(name, needed()?)?;
                self.subvolid = Some(if id == 0 { 5 } else { id });
            }
            "degraded" => self.degraded = true,
            "rescue" => needed()?.split(':').try_for_each(|r| self.parse_rescue(r))?,
            "offset" => self.offset = size(name, needed()?)?,
            "sizelimit" => self.size_limit = Some(size(name, needed()?)?).filter(|&s| s != 0),
            "commit" => {
                let secs = number(name, needed()?)?;
                self.commit_secs = if secs == 0 { 30 } else { secs };
            }
            "max_inline" => self.max_inline = size(name, needed()?)?,
            "cache" => self.cache_bytes = size(name, needed()?)?,
            "nodatacow" => self.nodatacow = true,
            "nodatasum" => self.nodatasum = true,
            "compress" | "compress-force" => self.compress = compress(name, value)?,
            "ssd" => self.media = Some(Media::Ssd),
            "nossd" => self.media = Some(Media::NoSsd),
            "ssd_spread" => self.media = Some(Media::SsdSpread),
            "nossd_spread" if self.media == Some(Media::SsdSpread) => self.media = Some(Media::Ssd),
            "nossd_spread" => {}
            "thread_pool" => {
                let count = number(name, needed()?)?.clamp(1, THREADS_MAX);
                self.thread_pool = Some(count as usize);
            }
            "writeback_cache" => self.writeback_cache = true,
            "csum_submit" => self.mechanisms.csum_submit = csum_submit(needed()?)?,
            "discard" => self.discard = value != Some("none"),
            "allow_other" => self.allow_other = true,
            "default_permissions" => self.default_permissions = true,
            _ if REFUSED.contains(&name) => {
                return Err(OptionsError(format!("option {name} is not supported yet")));
            }
            _ if ACCEPTED.contains(&name) => self.ignored.push(option.to_owned()),
            _ if name.starts_with("x-") => self.ignored.push(option.to_owned()),
            _ => return Err(OptionsError(format!("unknown option {name}"))),
        }
        if name == "rw" {
            self.read_only = false;
        }
        Ok(())
    }

    fn parse_rescue(&mut self, name: &str) -> Result<(), OptionsError> {
        let rescue = &mut self.rescue;
        match name {
            "usebackuproot" => rescue.use_backup_root = true,
            "ignorebadroots" | "ibadroots" => rescue.ignore_bad_roots = true,
            "ignoredatacsums" | "idatacsums" => rescue.ignore_data_csums = true,
            "nologreplay" => rescue.no_log_replay = true,
            "all" => {
                *rescue = Rescue {
                    use_backup_root: true,
                    ignore_bad_roots: true,
                    ignore_data_csums: true,
                    no_log_replay: true,
                };
            }
            "ignoremetacsums" | "imetacsums" | "ignoresuperflags" | "isuperflags" => {
                return Err(OptionsError(format!("option rescue={name} is not supported yet")));
            }
            _ => return Err(OptionsError(format!("unknown option rescue={name}"))),
        }
        Ok(())
    }
}

fn number(name: &str, value: &str) -> Result<u64, OptionsError> {
    value.parse().map_err(|_| OptionsError(format!("option {name}: {value} is not a number")))
}

fn compress(name: &str, value: Option<&str>) -> Result<Option<Compress>, OptionsError> {
    let value = value.unwrap_or("zlib");
    if value == "no" || value == "none" {
        return Ok(None);
    }
    let method = Method::parse(value).ok_or_else(|| {
        OptionsError(format!("option {name}: {value} is not zlib, lzo or zstd with a level"))
    })?;
    Ok(Some(Compress { method, force: name == "compress-force" }))
}

fn csum_submit(value: &str) -> Result<CsumSubmit, OptionsError> {
    match value {
        "auto" => Ok(CsumSubmit::Auto),
        "inline" => Ok(CsumSubmit::Inline),
        "offload" => Ok(CsumSubmit::Offload),
        _ => Err(OptionsError(format!("option csum_submit: {value} is not auto, inline or offload"))),
    }
}

fn size(name: &str, value: &str) -> Result<u64, OptionsError> {
    parse_size(value).ok_or_else(|| OptionsError(format!("option {name}: {value} is not a size")))
}

/// A size in bytes, with an optional suffix K, M, G, T, P or E (powers of 1024), as mkfs.btrfs takes it.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['b', 'B']).filter(|t| !t.is_empty()).unwrap_or(text);
    let text = text.strip_suffix(['i']).filter(|t| !t.is_empty()).unwrap_or(text);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<Options, OptionsError> {
        let mut options = Options::default();
        options.parse(list)?;
        Ok(options)
    }

    #[test]
    fn kernel_names_and_sizes() {
        let o =
            parse("thread_pool=3,writeback_cache,ro,subvol=/a/b,rescue=usebackuproot:idatacsums,offset=1M,cache=64M,noatime")
                .unwrap();
        assert!(o.read_only && o.rescue.use_backup_root && o.rescue.ignore_data_csums);
        assert_eq!((o.subvol.as_deref(), o.offset, o.cache_bytes), (Some(&b"/a/b"[..]), 1 << 20, 64 << 20));
        assert_eq!((o.thread_pool, o.writeback_cache), (Some(3), true));
        assert_eq!(parse("ssd_spread,nossd_spread").unwrap().media, Some(Media::Ssd));
        assert_eq!(parse("ssd,nossd").unwrap().media, Some(Media::NoSsd));
        assert_eq!(o.ignored, ["noatime"]);
        assert_eq!(parse("subvolid=0").unwrap().subvolid, Some(5));
        assert_eq!(parse_size("16GiB"), Some(16 << 30));
        assert_eq!(parse_size("99E"), None);
        assert_eq!(parse_size("k"), None);
    }

    #[test]
    fn what_is_not_served_is_refused_by_name() {
        for (list, text) in [
            ("compress=zip", "option compress: zip is not zlib, lzo or zstd with a level"),
            ("csum_submit=fast", "option csum_submit: fast is not auto, inline or offload"),
            ("autodefrag", "option autodefrag is not supported yet"),
            ("bogus", "unknown option bogus"),
            ("rescue=bogus", "unknown option rescue=bogus"),
            ("subvolid=x", "option subvolid: x is not a number"),
            ("commit", "option commit needs a value"),
        ] {
            assert_eq!(parse(list).unwrap_err().to_string(), text);
        }
    }
}
