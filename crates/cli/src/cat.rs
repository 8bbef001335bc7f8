//! `buttery cat`: the contents of files to standard output.

use crate::source::{self, SourceArgs};
use anyhow::{Context, Result};
use buttery::Kind;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let (fs, paths) = source::open_all(&args.source, &args.paths)?;
    let mut out = std::io::stdout().lock();
    let mut buf = vec![0; 1 << 20];
    for path in &paths {
        let name = || String::from_utf8_lossy(path).into_owned();
        let id = source::resolve(&fs, path, true)?;
        match fs.stat(id).with_context(name)?.kind() {
            Kind::File => {}
            Kind::Directory => return Err(buttery::Error::IsDirectory).with_context(name),
            _ => return Err(buttery::Error::Invalid).with_context(name),
        }
        let mut offset = 0;
        loop {
            let n = fs.read(id, offset, &mut buf).with_context(name)?;
            if n == 0 {
                break;
            }
            out.write_all(&buf[..n])?;
            offset += n as u64;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
