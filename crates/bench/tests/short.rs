//! The benchmarks in their short form: that they run and print what they promise, not how fast anything is.

use std::process::Command;

fn bench(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_buttery-bench")).args(args).output().expect("the program");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn mechanisms() {
    let svg = std::env::temp_dir().join(format!("buttery-bench-{}.svg", std::process::id()));
    let path = svg.display().to_string();
    let text = bench(&["mechanisms", "--size", "64M", "--runs", "1", "--shorter", "100", "--svg", &path]);
    let drawn = std::fs::read_to_string(&svg);
    let _ = std::fs::remove_file(&svg);
    for name in ["nocow-check", "replace-seq", "replace-rnd", "submit-crc32c", "submit-sha256", "read-1m"] {
        // the speeds, then a line of costs for each form
        let own = |line: &&str| line.split_whitespace().next() == Some(name);
        assert_eq!(text.lines().filter(own).count(), 3, "{name}: {text}");
        assert!(drawn.as_ref().expect("a drawing").contains(name), "{name} is drawn");
    }
}

#[test]
fn jobs() {
    let text = bench(&["jobs", "--size", "64M", "--operations", "8", "--threads", "1,2"]);
    for name in ["s0", "s0-nocow", "s1-seq", "s1-rnd", "s2", "s3-4k", "s3-1m"] {
        let lines: Vec<&str> = text.lines().filter(|l| l.split_whitespace().next() == Some(name)).collect();
        let operations = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
        let done: Vec<_> = lines.iter().map(|l| operations(l)).collect();
        assert_eq!(done, [Some("8".into()), Some("16".into())], "{name}: {text}");
    }
}
