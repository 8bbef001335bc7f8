//! Makes an image file and fills it: `cargo run --example make_and_fill -- disk.img`

use buttery::{Filesystem, NewNode, Options, XattrMode};
use buttery_device::{Access, Device, FileDevice, Window};
use buttery_mkfs::{MkfsOptions, make};
use std::path::PathBuf;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: make_and_fill IMAGE")?);
    std::fs::File::create(&path)?.set_len(512 << 20)?;
    {
        let device: Arc<dyn Device> =
            Arc::new(FileDevice::open(&path, Access::Exclusive, Window::default())?);
        make(&device, &MkfsOptions { label: b"example".to_vec(), ..MkfsOptions::default() })?;
    }
    let fs = Filesystem::open_writable(&[&path], &Options::default())?;
    let etc = fs.create(fs.root(), b"etc", NewNode::directory(0o755))?;
    let file = fs.create(etc, b"hostname", NewNode::file(0o644))?;
    fs.write(file, 0, b"buttery\n")?;
    fs.set_xattr(file, b"user.made.by", b"an example", XattrMode::Any)?;
    fs.symlink(fs.root(), b"name", b"etc/hostname", 0, 0)?;
    for number in 0..1000u32 {
        let name = format!("file-{number}");
        let file = fs.create(etc, name.as_bytes(), NewNode::file(0o600))?;
        fs.write(file, 0, &number.to_le_bytes().repeat(number as usize))?;
    }
    for number in (0..1000u32).step_by(3) {
        fs.unlink(etc, format!("file-{number}").as_bytes())?;
    }
    fs.close()?;
    Ok(())
}
