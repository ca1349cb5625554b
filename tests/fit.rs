//! `spillgate fit` as a user runs it, and the shipped profiles against what they were made from.
//!
//! Worked number: the command in a shipped profile's provenance writes that profile again, byte for
//! byte.

use spillgate::profile::{builtin, builtin_names};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of this test's own, and `spillgate` on the path.
fn sh(name: &str, command: &str, files: &[(&str, &str)]) -> (PathBuf, Output) {
    let folder = std::env::temp_dir().join(format!("spillgate-fit-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder in the temporary one");
    for (file, text) in files {
        std::fs::write(folder.join(file), text).expect("written");
    }
    let program = Path::new(env!("CARGO_BIN_EXE_spillgate"));
    let output = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(&folder)
        .env("PATH", program.parent().expect("in a folder"))
        .output()
        .expect("a shell");
    (folder, output)
}

fn measurements() -> Option<String> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let said = std::env::var_os("SPILLGATE_SHARED").map(PathBuf::from);
    let mut files =
        said.into_iter().chain([beside]).map(|folder| folder.join("measured/vllm_steady_rows.csv"));
    std::fs::read_to_string(files.find(|file| file.exists())?).ok()
}

#[test]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn the_command_in_a_shipped_profile_writes_it_again() {
    let Some(csv) = measurements() else {
        println!("skipped: no measured/vllm_steady_rows.csv in ../shared or SPILLGATE_SHARED");
        return;
    };
    for name in builtin_names() {
        let command = builtin(name).and_then(|file| file.spec.provenance).expect("known").command;
        let (folder, output) = sh(name, &command, &[("vllm_steady_rows.csv", &csv)]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}\n{said}");
        let again = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).expect("written");
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("profiles/{name}.yaml"));
        assert_eq!(again, std::fs::read_to_string(shipped).expect("shipped"));
        std::fs::remove_dir_all(folder).expect("removed");
    }
}

#[test]
fn shipped_profiles_are_as_accurate_as_the_plain_four_number_fit_or_better() {
    for name in builtin_names() {
        let accuracy = builtin(name).and_then(|file| file.spec.accuracy).expect("known");
        let (itl, ttft) = (accuracy.leave_one_out.itl, accuracy.leave_one_out.ttft);
        assert!(itl.median_percent <= 5.5 && itl.p90_percent <= 20.0, "{name}: {itl:?}");
        assert!(ttft.median_percent <= 6.5 && ttft.p90_percent <= 27.0, "{name}: {ttft:?}");
    }
}

const ROWS: &str = "\
model_path,system,precision,mode,isl,osl,batch_size,tp_size,silicon_ttft_ms,silicon_tpot_ms
m/One,h100,,agg,1024,128,8,1,150,18
m/One,h100,,agg,1024,128,16,1,nan,18
m/One,h100,,disagg,1024,128,16,,150,18
";

#[test]
fn refused_rows_are_told_on_standard_error_and_too_few_rows_end_with_three() {
    let command = "spillgate fit rows.csv --model m/One --system h100 --tp 1 \
                   --kv-bytes-per-token 1000 --weights-gb 10";
    let (folder, output) = sh("refused", command, &[("rows.csv", ROWS)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("rows.csv: line 3: TTFT is NaN ms"), "{said}");
    assert!(said.contains("rows.csv: line 4: mode is `disagg`"), "{said}");
    assert!(said.contains("1 usable rows, and 6 are needed"), "{said}");
    assert!(output.stdout.is_empty());
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_group_that_is_not_there_is_answered_with_those_that_are() {
    let command =
        "spillgate fit rows.csv --model m/Two --system h100 --tp 1 --kv-bytes-per-token 1";
    let (folder, output) = sh("group", command, &[("rows.csv", ROWS)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no usable row of model m/Two") && said.contains("m/One h100"), "{said}");
    std::fs::remove_dir_all(folder).expect("removed");
}
