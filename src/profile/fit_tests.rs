//! Tests of the fit as a whole, on rows made from known coefficients.
//!
//! Worked number: two devices of 80 GB at 0.9, less 2 GB each and 60 GB of weights, leave 80 GB:
//! 800 000 tokens of 100 kB.

use super::*;
use crate::profile::queueing::tests::rows as lines;
use crate::profile::steady::tests::{KNOWN, measured};
use crate::profile::{load, render};

fn given() -> Given {
    Given {
        name: "made-up".into(),
        group: Group {
            model: "m".into(),
            system: "s".into(),
            precision: String::new(),
            tensor_parallel: 2,
        },
        kv_bytes_per_token: 100_000,
        max_sequences: 256,
        token_budget: 8_192,
        transfer_bytes_per_second: 50_000_000_000,
        start_time: "2m".into(),
        kv_capacity_tokens: None,
        memory: Some(Memory {
            device_gb: 80.0,
            utilization: 0.9,
            weights_gb: 60.0,
            activations_gb: 2.0,
        }),
        date: "2026-12-01".into(),
        source: "made up: 'quotes', # and more".into(),
        licence: "none".into(),
        command: "spillgate fit".into(),
    }
}

fn rows(used: Vec<Row>) -> Rows {
    Rows { used, refused: Vec::new(), other_groups: 0, versions: BTreeSet::new() }
}

#[test]
fn known_coefficients_come_back_as_a_file_that_loads() {
    let fitted = fit(&rows(lines(measured(&KNOWN))), b"bytes", &given()).expect("fits");
    assert_eq!(fitted.warnings, Vec::<String>::new());
    let text = render(&fitted.file).expect("renders");
    assert_eq!(load("made-up.yaml", &text).expect("loads"), fitted.file);
    let model = fitted.file.profile().model;
    let near = |got: u64, want: f64| (got as f64 / want - 1.0).abs() < 1e-3;
    assert!(near(model.base, 14e9) && near(model.per_sequence, 7e7), "{model:?}");
    assert!(near(model.per_kv_token, 4e4) && near(model.per_prefill_token, 5e7), "{model:?}");
    assert!(near(model.per_prefill_token_context, 4e3), "{model:?}");
    // 2 x (80 x 0.9 - 2) - 60 = 80 GB of 100 kB.
    assert_eq!(fitted.file.spec.limits.kv_capacity_tokens, 800_000);
    assert_eq!(fitted.file.spec.limits.kv_capacity_known_by, KnownBy::Computed);
    assert!(fitted.file.spec.assumed.contains(&"limits.kvCapacityTokens".to_owned()));
}

#[test]
fn one_concurrency_only_gives_a_warning_that_says_what_is_needed() {
    let one = measured(&KNOWN).into_iter().filter(|row| row.point.concurrency == 16.0);
    let fitted = fit(&rows(lines(one.collect())), b"", &given()).expect("fits");
    assert_eq!(fitted.warnings.len(), 1);
    let warning = &fitted.warnings[0];
    assert!(warning.starts_with("concurrency is 16 in every row"), "{warning}");
    assert!(warning.contains("such as 4, 16 and 64"), "{warning}");
}

#[test]
fn five_rows_are_too_few_and_the_error_says_what_to_measure() {
    let five = measured(&KNOWN).into_iter().take(5).collect();
    let error = fit(&rows(lines(five)), b"", &given()).unwrap_err().to_string();
    assert!(error.starts_with("5 usable rows") && error.contains("two output lengths"));
}

#[test]
fn a_kv_capacity_that_nothing_bounds_is_asked_for() {
    let given = Given { memory: None, ..given() };
    let all = rows(lines(measured(&KNOWN)));
    assert!(matches!(fit(&all, b"", &given), Err(FitError::NoCapacity)));
    let given = Given { kv_capacity_tokens: Some(500_000), ..given };
    let limits = fit(&all, b"", &given).expect("fits").file.spec.limits;
    assert_eq!(limits.kv_capacity_known_by, KnownBy::Given);
}

#[test]
fn weights_that_do_not_fit_are_an_error_with_the_sum() {
    for weights_gb in [141.0, -1.0, f64::NAN] {
        let memory = given().memory.map(|memory| Memory { weights_gb, ..memory });
        let error = fit(&rows(lines(measured(&KNOWN))), b"", &Given { memory, ..given() });
        assert!(matches!(error, Err(FitError::Memory(_))), "{weights_gb}");
    }
}
