//! `buttery mkfs`: a new file system on one or several devices or image files.

use anyhow::{Context, Result, bail};
use buttery::{Time, parse_size, uuid};
use buttery_codec::CsumType;
use buttery_device::{Access, Device, FileDevice, Window};
use buttery_mkfs::{MkfsOptions, Profile, existing_signature};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Args {
    /// Make it even if the device holds something already
    #[arg(short = 'f', long)]
    force: bool,
    /// Do not discard the whole device first
    #[arg(short = 'K', long)]
    nodiscard: bool,
    /// The label, at most 255 bytes
    #[arg(short = 'L', long, default_value = "")]
    label: String,
    /// The uuid of the file system
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Bytes of a tree block
    #[arg(short = 'n', long, default_value = "16k", value_parser = parse_u32)]
    nodesize: u32,
    /// Bytes of a sector; only 4k is supported
    #[arg(short = 's', long, default_value = "4k", value_parser = parse_u32)]
    sectorsize: u32,
    /// Profile of metadata: single, dup, raid0, raid1, raid1c3, raid1c4 or raid10; if not given, dup on one device and
    /// raid1 on several
    #[arg(short = 'm', long, value_parser = parse_profile)]
    metadata: Option<Profile>,
    /// Profile of data: as for metadata
    #[arg(short = 'd', long, default_value = "single", value_parser = parse_profile)]
    data: Profile,
    /// The checksum: crc32c, xxhash, sha256 or blake2
    #[arg(long, alias = "checksum", default_value = "crc32c", value_parser = parse_csum)]
    csum: CsumType,
    /// The bytes to use of each device; all of it if not given
    #[arg(short = 'b', long = "byte-count", value_parser = parse_bytes)]
    byte_count: Option<u64>,
    /// Features to turn on, or with ^ off: block-group-tree, free-space-tree, no-holes, skinny-metadata, extref
    #[arg(short = 'O', long = "features", value_delimiter = ',')]
    features: Vec<String>,
    /// Make the image files first, sparse, with this size each
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    create: Option<u64>,
    /// Say nothing
    #[arg(short = 'q', long)]
    quiet: bool,
    /// The devices or image files
    #[arg(required = true)]
    devices: Vec<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let by_number = if args.devices.len() > 1 { Profile::Raid1 } else { Profile::Dup };
    let mut options = MkfsOptions {
        label: args.label.clone().into_bytes(),
        uuid: args.uuid,
        nodesize: args.nodesize,
        sectorsize: args.sectorsize,
        metadata: args.metadata.unwrap_or(by_number),
        data: args.data,
        csum: args.csum,
        byte_count: args.byte_count,
        discard: !args.nodiscard,
        time: epoch()?,
        ..MkfsOptions::default()
    };
    for feature in &args.features {
        set_feature(&mut options, feature)?;
    }
    if let Some(profile) = [options.data, options.metadata].into_iter().find(|p| p.shape().parity > 0) {
        bail!("writing profile {} is not supported yet", profile.name());
    }
    if let Some(size) = args.create {
        args.devices.iter().try_for_each(|path| create_file(path, size))?;
    }
    let made = make_on(&args.devices, &options, args.force)?;
    if !args.quiet {
        println!("UUID:               {}", uuid_text(&made.uuid));
        println!("Label:              {}", if args.label.is_empty() { "(null)" } else { &args.label });
        println!("Node size:          {}", options.nodesize);
        println!("Sector size:        {}", options.sectorsize);
        println!("Filesystem size:    {} bytes", made.size);
        println!("Checksum:           {}", options.csum.name());
        println!("Metadata, data:     {}, {}", options.metadata.name(), options.data.name());
        println!("Number of devices:  {}", args.devices.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a file system on files or devices, unless one holds something and `force` is not given.
pub fn make_on(paths: &[PathBuf], options: &MkfsOptions, force: bool) -> Result<buttery_mkfs::Made> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for path in paths {
        let open = FileDevice::open(path, Access::Exclusive, Window::default());
        let device = open.with_context(|| path.display().to_string())?;
        if let Some(what) = existing_signature(&device)
            && !force
        {
            bail!("{}: it appears to contain {what}; use -f to overwrite", path.display());
        }
        devices.push(Arc::new(device));
    }
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    buttery_mkfs::make_on(&devices, options).with_context(|| names.join(", "))
}

/// Makes a sparse file. One that is there must be as large already.
pub fn create_file(path: &Path, size: u64) -> Result<()> {
    let context = || path.display().to_string();
    match std::fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => file.set_len(size).with_context(context),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let len = std::fs::metadata(path).with_context(context)?.len();
            if len != size {
                bail!("{}: is there already, with {len} bytes", path.display());
            }
            Ok(())
        }
        Err(e) => Err(e).with_context(context),
    }
}

fn set_feature(options: &mut MkfsOptions, feature: &str) -> Result<()> {
    let (name, on) = match feature.strip_prefix('^') {
        Some(name) => (name, false),
        None => (feature, true),
    };
    match (name, on) {
        ("block-group-tree" | "bgt", on) => options.block_group_tree = on,
        ("free-space-tree" | "fst" | "no-holes" | "skinny-metadata" | "extref" | "default", true) => {}
        ("free-space-tree" | "fst" | "no-holes" | "skinny-metadata" | "extref", false) => {
            bail!("feature {name} cannot be turned off: writing without it is not supported")
        }
        _ => bail!("feature {name} is not supported"),
    }
    Ok(())
}

/// The time that SOURCE_DATE_EPOCH gives to everything, if it is set.
pub fn epoch() -> Result<Option<Time>> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => {
            let sec = text.parse().with_context(|| format!("SOURCE_DATE_EPOCH: {text}"))?;
            Ok(Some(Time { sec, nsec: 0 }))
        }
        Err(_) => Ok(None),
    }
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{text} is not a size"))
}

fn parse_u32(text: &str) -> Result<u32, String> {
    parse_bytes(text)?.try_into().map_err(|_| format!("{text} is too large"))
}

fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    uuid::parse(text).ok_or_else(|| format!("{text} is not a uuid"))
}

fn parse_profile(text: &str) -> Result<Profile, String> {
    match Profile::parse(text) {
        Some(profile) => Ok(profile),
        None => Err(format!("{text} is not a profile")),
    }
}

fn parse_csum(text: &str) -> Result<CsumType, String> {
    CsumType::from_name(text).ok_or_else(|| format!("{text} is not a checksum"))
}
