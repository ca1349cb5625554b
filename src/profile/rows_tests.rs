//! Tests of reading measurements: each way a row can be wrong, and its line.
//!
//! Worked number: the eleventh row after the header stands on line 12.

use super::*;

const HEADER: &str = "id,backend_version,model_path,system,precision,mode,isl,osl,batch_size,\
                      tp_size,silicon_ttft_ms,silicon_tpot_ms\n";

fn group() -> Group {
    Group {
        model: "m/One".into(),
        system: "h100".into(),
        precision: String::new(),
        tensor_parallel: 2,
    }
}

fn read_lines(lines: &[&str]) -> Result<Rows, RowsError> {
    read(format!("{HEADER}{}\n", lines.join("\n")).as_bytes(), &group())
}

#[test]
fn unusable_rows_are_refused_with_their_lines() {
    let rows = read_lines(&[
        "a,0.1,m/One,h100,,agg,1024,128,8,2,150,18",
        "b,0.1,m/One,h100,,agg,1024,128,16,2,nan,18",
        "c,0.1,m/One,h100,,disagg,1024,128,,,150,18",
        "d,0.1,m/One,h100,,agg,1024,128,0,2,150,18",
        "e,0.1,m/One,h100,,agg,1024,128,8,2,150,18",
        "f,0.1,m/One,h100,,agg,1024,128,8,2,150,-18",
        "g,0.1,m/One,h100,,agg,1024,128,8,2,inf,18",
        "h,0.1,m/One,h100,,agg,1024,128,,2,150,18",
        "i,0.1,m/One,h100,,agg,1024",
        "j,0.1,m/One,h100,,agg,10x24,128,8,2,150,18",
        "k,0.1,m/One,h100,,agg,1024,128,8,4,150,18",
        "l,0.1,m/Two,h100,,agg,1024,128,8,2,150,18",
    ])
    .expect("one usable row");
    let said: Vec<String> = rows.refused.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    line 3: TTFT is NaN ms, not a positive number
    line 4: mode is `disagg`, not `agg`: prefill and decode ran apart, and a step that does both is fitted
    line 5: concurrency (batch_size) is 0, not a positive number
    line 6: duplicate of line 2
    line 7: TPOT is -18 ms, not a positive number
    line 8: TTFT is inf ms, not a positive number
    line 9: concurrency (batch_size) is missing
    line 10: 7 fields where the header has 12
    line 11: isl is `10x24`, not a number
    ");
    assert_eq!((rows.used.len(), rows.other_groups), (1, 2));
}

#[test]
fn the_same_conditions_measured_twice_are_two_rows() {
    let rows = read_lines(&[
        "a,0.1,m/One,h100,,agg,1024,128,8,2,150,18",
        "b,0.1,m/One,h100,,agg,1024,128,8,2,151,18",
    ])
    .expect("usable");
    assert_eq!(rows.used.len(), 2);
}

#[test]
fn an_empty_file_a_missing_column_and_a_missing_group_are_told_apart() {
    assert_eq!(read(b"", &group()), Err(RowsError::Empty));
    assert_eq!(read(b"a,b\n1,2\n", &group()), Err(RowsError::NoColumn("model_path")));
    let error = read_lines(&["l,0.1,m/Two,h100,,agg,1024,128,8,2,150,18"]).unwrap_err();
    assert!(error.to_string().contains("the file has m/Two h100 '' tp 2"), "{error}");
}

#[test]
fn a_quote_that_is_never_closed_says_how_many_lines_it_took() {
    let good = "a,0.1,m/One,h100,,agg,1024,128,8,2,150,18";
    let rows = read_lines(&[good, "\"b,0.1", good, good]).expect("one usable row");
    let said: Vec<String> = rows.refused.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["line 3: 3 line ends inside a quote; is one not closed?"]);
}

#[test]
fn lines_are_counted_alike_whatever_ends_them() {
    let lines = [HEADER.trim_end(), "", "x", "a,0.1,m/One,h100,,agg,1024,128,8,2,150,18", "y"];
    for end in ["\n", "\r\n"] {
        let rows = read(lines.join(end).as_bytes(), &group()).expect("one usable row");
        let refused: Vec<u64> = rows.refused.iter().map(|refusal| refusal.line).collect();
        assert_eq!((refused, rows.used[0].line), (vec![3, 5], 4), "{end:?}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_like_any_other_field() {
    let mut bytes = format!("{HEADER}a,0.1,m/One,h100,,agg,1024,128,8,2,").into_bytes();
    bytes.extend([0xff, 0xfe]);
    bytes.extend(b",18\nb,0.1,m/One,h100,,agg,1024,128,8,2,150,18\n");
    let rows = read(&bytes, &group()).expect("one usable row");
    assert_eq!(rows.refused.len(), 1);
}

#[test]
fn what_is_suggested_first_is_the_same_model() {
    let row = |model: &str, tp: u32| format!("l,0.1,{model},h100,,agg,1024,128,8,{tp},150,18");
    let mut lines: Vec<String> = (0..30).map(|i| row(&format!("a/Other-{i}"), 2)).collect();
    let without = lines.iter().map(String::as_str).collect::<Vec<_>>();
    let error = read_lines(&without).unwrap_err().to_string();
    assert!(error.ends_with("and 10 more"), "{error}");
    lines.push(row("m/One-Instruct", 4));
    let with = lines.iter().map(String::as_str).collect::<Vec<_>>();
    let error = read_lines(&with).unwrap_err().to_string();
    assert!(error.ends_with("the file has m/One-Instruct h100 '' tp 4"), "{error}");
}
