//! Profiles: how many devices a chunk takes, and how its bytes lie on them. The table is the kernel's, as mkfs.btrfs(8)
//! and the format's documentation give it.

use crate::chunk::bg;

/// How copies and stripes of a chunk lie on devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    Single,
    Dup,
    Raid0,
    Raid1,
    Raid1c3,
    Raid1c4,
    Raid10,
    Raid5,
    Raid6,
}

/// What a profile asks of the devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Stripes of a chunk on each device.
    pub stripes_per_device: usize,
    /// The fewest devices of a chunk.
    pub devices_min: usize,
    /// The most; `None`: as many as there are.
    pub devices_max: Option<usize>,
    /// The number of devices must be a multiple of this.
    pub devices_step: usize,
    /// How often each byte is there.
    pub copies: usize,
    /// How many stripes hold parity.
    pub parity: usize,
}

impl Profile {
    /// Every profile, those that survive the most first: the order in which the kernel chooses among the profiles that
    /// a file system has.
    pub const ALL: [Profile; 9] = [
        Profile::Raid1c4,
        Profile::Raid6,
        Profile::Raid1c3,
        Profile::Raid5,
        Profile::Raid10,
        Profile::Raid1,
        Profile::Dup,
        Profile::Raid0,
        Profile::Single,
    ];

    /// The profile of a chunk or block group with these type and profile bits; `None` if they are of several.
    pub fn of(flags: u64) -> Option<Profile> {
        Self::ALL.into_iter().find(|profile| profile.bits() == flags & bg::PROFILE_MASK)
    }

    /// The profile of this name, in any case: `raid1`, `dup`.
    pub fn parse(name: &str) -> Option<Profile> {
        Self::ALL.into_iter().find(|profile| profile.name().eq_ignore_ascii_case(name))
    }

    /// Its bits in a chunk's type; none for single.
    pub fn bits(self) -> u64 {
        match self {
            Profile::Single => 0,
            Profile::Dup => bg::DUP,
            Profile::Raid0 => bg::RAID0,
            Profile::Raid1 => bg::RAID1,
            Profile::Raid1c3 => bg::RAID1C3,
            Profile::Raid1c4 => bg::RAID1C4,
            Profile::Raid10 => bg::RAID10,
            Profile::Raid5 => bg::RAID5,
            Profile::Raid6 => bg::RAID6,
        }
    }

    /// Its name, as mkfs.btrfs takes it.
    pub fn name(self) -> &'static str {
        bg::profile_name(self.bits())
    }

    /// What it asks of the devices.
    pub fn shape(self) -> Shape {
        let (min, max, step, copies, parity) = match self {
            Profile::Single | Profile::Dup => (1, Some(1), 1, 1, 0),
            Profile::Raid0 => (1, None, 1, 1, 0),
            Profile::Raid1 => (2, Some(2), 2, 2, 0),
            Profile::Raid1c3 => (3, Some(3), 3, 3, 0),
            Profile::Raid1c4 => (4, Some(4), 4, 4, 0),
            Profile::Raid10 => (2, None, 2, 2, 0),
            Profile::Raid5 => (2, None, 1, 1, 1),
            Profile::Raid6 => (3, None, 1, 1, 2),
        };
        let twice = if self == Profile::Dup { 2 } else { 1 };
        Shape {
            stripes_per_device: twice,
            devices_min: min,
            devices_max: max,
            devices_step: step,
            copies: copies * twice,
            parity,
        }
    }

    /// Neighbouring stripes that hold the same bytes: the format's `sub_stripes`.
    pub fn sub_stripes(self) -> u16 {
        if self == Profile::Raid10 { 2 } else { 1 }
    }

    /// Whether each copy is on a device of its own.
    pub fn is_mirrored(self) -> bool {
        self.shape().copies > 1 && self != Profile::Dup
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bits_lead_back() {
        for profile in Profile::ALL {
            assert_eq!(Profile::parse(&profile.name().to_uppercase()), Some(profile));
            assert_eq!(Profile::of(profile.bits() | bg::DATA), Some(profile));
        }
        assert_eq!(Profile::of(bg::RAID1 | bg::RAID0), None);
        assert_eq!(Profile::parse("raid7"), None);
    }
}
