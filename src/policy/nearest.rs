//! The near miss: which known word a wrong one was probably meant to be.
//!
//! Two distances are taken and the smaller counts: letters inserted, removed or exchanged, and
//! words missing or added whatever their order, since `running_requests` is closer to
//! `num_requests_running` than its letters say.
//!
//! Worked number: `scaledown` is one letter away from `scaleDown`; `colour` is five or more away
//! from every field and gets no suggestion.

use std::collections::BTreeSet;

/// Words longer than this are not compared: nobody mistypes them, and the time is quadratic.
const LONGEST: usize = 64;
/// So many known words are looked at: all time zones, and no more of what a hostile file defines.
const MOST_KNOWN: usize = 700;
/// Words farther apart than this were never meant for each other.
const FARTHEST: usize = 4;
/// So many known words are shown.
const MOST_SHOWN: usize = 12;

/// The known word nearest to `word`, if any is near enough to have been meant.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    if length > LONGEST {
        return None;
    }
    let allowed = (length / 3).min(FARTHEST);
    known
        .into_iter()
        .take(MOST_KNOWN)
        .filter(|candidate| candidate.chars().count() <= LONGEST)
        .map(|candidate| (distance(word, candidate).min(word_distance(word, candidate)), candidate))
        .filter(|(far, candidate)| *far <= allowed || word.eq_ignore_ascii_case(candidate))
        .min()
        .map(|(_, candidate)| candidate)
}

/// "did you mean `x`?", or else the known words in a row.
pub(super) fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => String::from("nothing is known here"),
        None if known.len() > MOST_SHOWN => {
            format!("known here: {} and others", known[..MOST_SHOWN].join(", "))
        }
        None => format!("known here: {}", known.join(", ")),
    }
}

/// Levenshtein distance, with letters that differ only in case taken as half a step; exact only up
/// to [`FARTHEST`].
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    if a.chars().count().abs_diff(b.len()) > FARTHEST {
        return FARTHEST + 1;
    }
    let mut row: Vec<usize> = (0..=b.len()).map(|i| i * 2).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = (i + 1) * 2;
        for (j, right) in b.iter().enumerate() {
            let exchange = match left {
                _ if left == *right => 0,
                _ if left.eq_ignore_ascii_case(right) => 1,
                _ => 2,
            };
            let best = (diagonal + exchange).min(row[j] + 2).min(row[j + 1] + 2);
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
        if row.iter().all(|cost| *cost > FARTHEST * 2) {
            return FARTHEST + 1;
        }
    }
    row[b.len()].div_ceil(2)
}

/// Twice the number of `_`- or `-`-separated words that only one side has; far away where they
/// share none.
fn word_distance(a: &str, b: &str) -> usize {
    let words = |text: &'_ str| -> BTreeSet<String> {
        text.split(['_', '-', ' ']).map(str::to_ascii_lowercase).collect()
    };
    let (a, b) = (words(a), words(b));
    if a.intersection(&b).count() < 2 {
        return usize::MAX;
    }
    a.symmetric_difference(&b).count() * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_case_or_letter_is_recognised() {
        assert_eq!(nearest("scaledown", ["forecast", "scaleDown"]), Some("scaleDown"));
        assert_eq!(nearest("minReplica", ["maxReplicas", "minReplicas"]), Some("minReplicas"));
        assert_eq!(nearest("vllm", ["SGLang", "VLLM"]), Some("VLLM"), "case alone is no distance");
        assert_eq!(nearest("colour", ["forecast", "scaleDown"]), None);
        assert_eq!(nearest("b", ["a"]), None, "any letter is one letter away");
    }

    #[test]
    fn words_in_another_order_are_recognised() {
        let known = ["num_requests_waiting", "num_requests_running", "kv_cache_usage"];
        assert_eq!(nearest("running_requests", known), Some("num_requests_running"));
    }

    #[test]
    fn a_word_of_a_megabyte_is_not_compared() {
        assert_eq!(nearest(&"x".repeat(1 << 20), ["x"]), None);
    }
}
