//! The program `buttery`, run with a limit of time and memory, and what it said.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use buttery_judge::TempDir;

/// How a run ended.
pub struct Run {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub took: Duration,
    pub timed_out: bool,
    pub line: String,
}

/// What a run may use.
#[derive(Clone, Copy)]
pub struct Limits {
    pub time: Duration,
    pub address_space_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { time: Duration::from_secs(120), address_space_bytes: 4 << 30 }
    }
}

/// Runs `buttery` with these arguments.
pub fn buttery<S: AsRef<OsStr>>(args: &[S]) -> Run {
    buttery_with(args, Limits::default())
}

/// Runs `buttery` within limits. It is killed when its time is over.
pub fn buttery_with<S: AsRef<OsStr>>(args: &[S], limits: Limits) -> Run {
    let dir = TempDir::new("run").expect("a folder");
    let file = |name: &str| {
        File::options().create_new(true).read(true).write(true).open(dir.join(name)).expect("a file")
    };
    let (mut out, mut err) = (file("out"), file("err"));
    // The shell sets the limit and becomes the program.
    let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", limits.address_space_bytes / 1024);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(env!("CARGO_BIN_EXE_buttery")).args(args).stdin(Stdio::null());
    command.stdout(out.try_clone().expect("a file")).stderr(err.try_clone().expect("a file"));
    let began = Instant::now();
    let mut child = command.spawn().expect("a shell");
    let mut timed_out = false;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if began.elapsed() > limits.time {
            timed_out = true;
            child.kill().expect("our own child");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let line = args.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    let stderr = String::from_utf8_lossy(&whole(&mut err)).into_owned();
    Run { status, stdout: whole(&mut out), stderr, took: began.elapsed(), timed_out, line }
}

fn whole(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("a file");
    file.read_to_end(&mut bytes).expect("a file");
    bytes
}

impl Run {
    /// `Err` if it crashed, ran into a limit, or said nothing about a failure.
    pub fn sane(&self) -> Result<(), String> {
        let fault = if self.timed_out {
            "no end".to_string()
        } else if let Some(signal) = self.status.signal() {
            format!("signal {signal}")
        } else if self.stderr.contains("panicked") || self.stderr.contains("RUST_BACKTRACE") {
            "a panic".into()
        } else if !matches!(self.status.code(), Some(0 | 1)) {
            format!("exit status {:?}", self.status.code())
        } else if !self.status.success() && self.stderr.trim().is_empty() {
            "a failure without a word".into()
        } else {
            return Ok(());
        };
        let said: String = self.stderr.chars().take(2000).collect();
        Err(format!("buttery {}: {fault} after {:?}\n{said}", self.line, self.took))
    }

    /// The run must have succeeded without a word on standard error.
    pub fn quiet(self) -> Run {
        assert!(self.status.success(), "buttery {}: {}\n{}", self.line, self.status, self.stderr);
        assert_eq!(self.stderr, "", "buttery {}", self.line);
        self
    }

    /// The run must have succeeded; what it said is the caller's to look at.
    pub fn ok(self) -> Run {
        assert!(self.status.success(), "buttery {}: {}\n{}", self.line, self.status, self.stderr);
        self
    }

    /// The run must have failed with exit status 1 and each of these on standard error.
    pub fn fails(self, parts: &[&str]) -> Run {
        self.sane().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(self.status.code(), Some(1), "buttery {}\n{}", self.line, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "buttery {}: {part:?} is not in\n{}", self.line, self.stderr);
        }
        self
    }
}

/// `IMAGE:/PATH`
pub fn inside(image: &Path, path: &str) -> OsString {
    let mut spec = image.as_os_str().to_owned();
    spec.push(":");
    spec.push(path);
    spec
}

/// A command and its words, the devices after the first as `-d`.
pub fn args(words: &[&str], devices: &[impl AsRef<Path>]) -> Vec<OsString> {
    let mut args: Vec<OsString> = words.iter().map(OsString::from).collect();
    for device in devices.iter().skip(1) {
        args.extend(["-d".into(), device.as_ref().as_os_str().to_owned()]);
    }
    args
}
