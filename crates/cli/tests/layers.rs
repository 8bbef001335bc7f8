//! The layers: a crate may use those above it, never one below (ARCHITECTURE.md).

use std::fs;
use std::path::Path;

/// The crates in their order. Those for development come last and are used by none.
const ORDER: [&str; 10] = [
    "buttery-disk",
    "buttery-codec",
    "buttery-device",
    "buttery-volume",
    "buttery-engine",
    "buttery",
    "buttery-mkfs",
    "buttery-print",
    "buttery-fuse",
    "buttery-cli",
];

fn manifests() -> Vec<(String, Vec<String>)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/");
    let mut out = Vec::new();
    for entry in fs::read_dir(crates).expect("crates/") {
        let text = fs::read_to_string(entry.expect("a crate").path().join("Cargo.toml")).expect("a manifest");
        let name = text.lines().find_map(|l| l.strip_prefix("name = \"")).expect("a name");
        let name = name.trim_end_matches('"').to_owned();
        let used = text.split("\n[dependencies]").nth(1).unwrap_or("").split("\n[").next().unwrap_or("");
        let used = used.lines().filter_map(|l| l.split(['.', ' ', '=']).next());
        out.push((name, used.filter(|u| u.starts_with("buttery")).map(str::to_owned).collect()));
    }
    out
}

#[test]
fn no_crate_uses_one_below_it() {
    let place = |name: &str| ORDER.iter().position(|o| *o == name);
    for (name, used) in manifests() {
        for other in &used {
            if let (Some(own), Some(theirs)) = (place(&name), place(other)) {
                assert!(theirs < own, "{name} uses {other}");
            } else {
                assert!(place(&name).is_none(), "{name} uses {other}, which is for development");
            }
        }
    }
}

#[test]
fn what_must_stay_apart_does() {
    for (name, used) in manifests() {
        let uses = |other: &str| used.iter().any(|u| u == other);
        match name.as_str() {
            "buttery-print" => assert_eq!(used, ["buttery-disk"], "the printer knows the format only"),
            "buttery-judge" => assert!(used.is_empty(), "a judge shares no code with what it judges"),
            "buttery-fuse" | "buttery-cli" => {}
            _ => assert!(!uses("buttery-fuse"), "{name} knows FUSE"),
        }
    }
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/");
    let mut stack = vec![crates.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                stack.push(path);
                continue;
            }
            let shown = path.strip_prefix(crates).expect("below").display().to_string();
            let product = shown.contains("/src/") && !shown.starts_with("device/");
            if path.extension().is_some_and(|e| e == "rs") && product {
                let text = fs::read_to_string(&path).expect("a source");
                let found = text.lines().any(|l| l.trim_start().contains(concat!("un", "safe {")));
                assert!(!found, "{shown}");
            }
        }
    }
}
