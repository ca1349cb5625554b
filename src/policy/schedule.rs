//! Schedules: when which floor is in force.
//!
//! A schedule fires by its cron expression in its time zone and stays in force for `duration` of
//! real time from there. Clocks that change: a firing that falls into the hour that spring leaves
//! out happens at the first moment after it; one that falls into the hour that autumn repeats
//! happens once, at the first of the two. Zones come from the database built into the program, so
//! the same policy means the same on every machine.
//!
//! Worked number: `0 8 * * 1-5` for 10 h in Europe/Rome is in force from 06:00 to 16:00 UTC in
//! summer and from 07:00 to 17:00 UTC in winter.

use super::manifest::{Autoscaler, Schedule};
use super::nearest::nearest;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use croner::time::Weekday;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use spillgate_core::observation::Name;
use spillgate_core::units::Replicas;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// All names, for near misses.
static ZONE_NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| ZONES.available().map(|zone| zone.to_string()).collect());
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Longest cron expression that is read; the longest sensible one is far below.
const LONGEST: usize = 200;

/// A cron expression of five fields that fires on some day.
pub(super) fn expression(text: &str) -> Result<Cron, String> {
    let cron = parse(text)?;
    if ever_fires(&cron) { Ok(cron) } else { Err("never fires, as on 30 February".into()) }
}

/// Whether any day of 28 years matches; after so many the calendar repeats. Asking for the next
/// firing instead would search thousands of years for 30 February.
fn ever_fires(cron: &Cron) -> bool {
    let fires_on = |year: i16, month: i8, day: i8| {
        let Ok(date) = Date::new(year, month, day) else { return false };
        let of_week = date.weekday().to_sunday_zero_offset().unsigned_abs();
        let of_week = Weekday::from_days_from_sunday(of_week.into());
        let (month, day) = (month.unsigned_abs().into(), day.unsigned_abs().into());
        cron.pattern.day_match(year.into(), month, day, of_week).unwrap_or(false)
    };
    (1..=12_i8)
        .filter(|month| cron.pattern.month_match(month.unsigned_abs().into()).unwrap_or(false))
        .any(|month| (1972..2000).any(|year| (1..=31).any(|day| fires_on(year, month, day))))
}

fn parse(text: &str) -> Result<Cron, String> {
    if text.len() > LONGEST {
        return Err(format!("has more than {LONGEST} characters"));
    }
    if text.contains("TZ=") {
        return Err("carries a time zone; name it in `timeZone` instead".into());
    }
    let fields = text.split_whitespace().count();
    if fields != 5 && !text.starts_with('@') {
        return Err(format!("has {fields} fields, not five: minute hour day month weekday"));
    }
    CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build()
        .parse(text)
        .map_err(|error| format!("is no cron expression: {error}"))
}

/// A time zone by its IANA name, or the near miss.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    ZONES.get(name).map_err(|_| match nearest(name, ZONE_NAMES.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "name it as in Europe/Rome".into(),
    })
}

/// The floor of every pool at `unix_ms`: its `minReplicas`, raised by the schedules in force.
///
/// A schedule that cannot be read raises nothing; `check` has refused such a policy before.
#[must_use]
pub fn floors_at(autoscaler: &Autoscaler, unix_ms: u64) -> BTreeMap<Name, Replicas> {
    let spec = &autoscaler.spec;
    let mut floors: BTreeMap<Name, Replicas> = spec
        .pools
        .iter()
        .map(|pool| (Name::from(pool.name.as_str()), Replicas(pool.min_replicas)))
        .collect();
    for schedule in spec.schedules.iter().filter(|schedule| in_force(schedule, unix_ms)) {
        for floor in &schedule.min_replicas {
            if let Some(replicas) = floors.get_mut(floor.pool.as_str()) {
                *replicas = (*replicas).max(Replicas(floor.replicas));
            }
        }
    }
    floors
}

/// Whether the last firing at or before `unix_ms` is less than `duration` ago.
fn in_force(schedule: &Schedule, unix_ms: u64) -> bool {
    let last_firing = || -> Option<i64> {
        let cron = parse(&schedule.schedule).ok()?;
        let zone = zone(&schedule.time_zone).ok()?;
        let now = Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()?.to_zoned(zone);
        let firing = cron.find_previous_occurrence(&now, true).ok()?;
        Some(firing.timestamp().as_millisecond())
    };
    last_firing().is_some_and(|fired| {
        let since = i64::try_from(unix_ms).unwrap_or(i64::MAX).saturating_sub(fired);
        u64::try_from(since).is_ok_and(|since| since < schedule.duration.span().0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::values::{Time, duration};

    fn schedule(cron: &str, length: &str, zone: &str) -> Schedule {
        Schedule {
            name: "test".into(),
            schedule: cron.into(),
            duration: duration(length).unwrap_or(Time::secs(1)),
            time_zone: zone.into(),
            min_replicas: Vec::new(),
        }
    }

    fn at(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_millisecond().unsigned_abs()
    }

    #[track_caller]
    fn assert_edges(schedule: &Schedule, starts: &str, ends: &str) {
        assert!(!in_force(schedule, at(starts) - 1), "before the start");
        assert!(in_force(schedule, at(starts)), "at the start");
        assert!(in_force(schedule, at(starts) + 500), "just after the start");
        assert!(in_force(schedule, at(ends) - 1), "before the end");
        assert!(!in_force(schedule, at(ends)), "at the end");
    }

    #[test]
    fn office_hours_follow_the_zone_in_summer_and_winter() {
        let office = schedule("0 8 * * 1-5", "10h", "Europe/Rome");
        assert_edges(&office, "2026-07-01T06:00:00Z", "2026-07-01T16:00:00Z");
        assert_edges(&office, "2026-01-07T07:00:00Z", "2026-01-07T17:00:00Z");
        assert!(!in_force(&office, at("2026-07-04T09:00:00Z")), "Saturday");
    }

    #[test]
    fn a_firing_in_the_hour_that_spring_leaves_out_happens_right_after_it() {
        let night = schedule("30 2 * * *", "1h", "Europe/Rome");
        assert_edges(&night, "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z");
    }

    #[test]
    fn a_firing_in_the_hour_that_autumn_repeats_happens_once() {
        let night = schedule("30 2 * * *", "30m", "Europe/Rome");
        assert_edges(&night, "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z");
        assert!(!in_force(&night, at("2026-10-25T01:30:00Z")), "the second 02:30");
    }

    #[test]
    fn a_night_that_spans_a_change_of_clocks_lasts_its_duration() {
        let night = schedule("0 22 * * *", "8h", "America/New_York");
        assert_edges(&night, "2026-03-08T03:00:00Z", "2026-03-08T11:00:00Z");
    }

    #[test]
    fn what_never_fires_or_is_no_cron_is_refused_in_words() {
        for (text, part) in [
            ("0 0 30 2 *", "never fires"),
            ("0 8 * *", "4 fields"),
            ("0 0 8 * * 1-5", "6 fields"),
            ("61 8 * * *", "no cron expression"),
            ("TZ=UTC 0 8 * * *", "time zone"),
            ("@nonsense", "no cron expression"),
        ] {
            let message = expression(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert!(expression("0 0 29 2 *").is_ok());
        assert!(expression("@daily").is_ok());
    }

    #[test]
    fn an_unknown_zone_has_its_near_miss() {
        assert_eq!(zone("Europe/Roma").unwrap_err(), "did you mean `Europe/Rome`?");
        assert!(zone("Mars").is_err());
    }
}
