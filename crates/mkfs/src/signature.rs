//! Whether a device holds something already.

use buttery_device::Device;

/// Where a signature stands, and of what.
const SIGNATURES: &[(u64, &[u8], &str)] = &[
    (0x10040, b"_BHRfS_M", "btrfs"),
    (0x438, b"\x53\xEF", "ext2, ext3 or ext4"),
    (0, b"XFSB", "xfs"),
    (0, b"hsqs", "squashfs"),
    (1024, b"\xE2\xE1\xF5\xE0", "erofs"),
    (1024, b"\x10\x20\xF5\xF2", "f2fs"),
    (0, b"LUKS\xBA\xBE", "LUKS"),
    (512, b"EFI PART", "a GPT partition table"),
    (510, b"\x55\xAA", "a partition table or FAT"),
    (3, b"NTFS    ", "ntfs"),
    (0x8001, b"CD001", "iso9660"),
    (4086, b"SWAPSPACE2", "swap"),
    (512 + 24, b"LVM2 001", "LVM"),
];

/// What a device seems to hold; `None` if nothing that is known.
pub fn found(device: &dyn Device) -> Option<&'static str> {
    SIGNATURES.iter().find_map(|&(offset, bytes, name)| {
        let mut got = vec![0; bytes.len()];
        (device.read_at(offset, &mut got).is_ok() && got == bytes).then_some(name)
    })
}
