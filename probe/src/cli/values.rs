//! The values on the command line that have a form of their own: groups, options, times, rates, speeds.
//!
//! Promises: a wrong value is refused with the value and what is allowed. Does not do: judging what the library judges.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use lockgate::receive::{Group, ParseGroupError};

/// How fast a stream is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// Bits of UDP payload a second.
    Bits(u64),
    /// Packets a second.
    Packets(u64),
    /// As fast as it goes.
    Unlimited,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "{text:?} is not a rate; allowed: packets a second such as 4000 or 20k, bits such as 8Mbit, max"
            )
        };
        if text == "max" {
            return Ok(Self::Unlimited);
        }
        let (number, bits) = match text.strip_suffix("bit") {
            Some(number) => (number, true),
            None => (text, false),
        };
        let (number, factor) = match number.as_bytes().last() {
            Some(b'k') => (&number[..number.len() - 1], 1e3),
            Some(b'M') => (&number[..number.len() - 1], 1e6),
            Some(b'G') => (&number[..number.len() - 1], 1e9),
            _ => (number, 1.0),
        };
        let value = decimal(number).ok_or_else(refused)? * factor;
        if !(1.0..=1e12).contains(&value) {
            return Err(refused());
        }
        let value = value.round() as u64; // within the range above
        Ok(if bits {
            Self::Bits(value)
        } else {
            Self::Packets(value)
        })
    }
}

/// How fast a capture is sent again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    /// So many times as fast.
    Factor(f64),
    /// As fast as it goes.
    Max,
    /// As it was captured.
    Original,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "max" => return Ok(Self::Max),
            "original" => return Ok(Self::Original),
            _ => {}
        }
        decimal(text)
            .filter(|factor| (1e-6..=1e6).contains(factor))
            .map(Self::Factor)
            .ok_or_else(|| {
                format!(
                    "{text:?} is not a speed; allowed: original, max, or a factor such as 2 or 0.5"
                )
            })
    }
}

/// Digits and at most one point; no sign, no exponent, no name of a number.
fn decimal(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| plain)
}

pub(super) fn group(text: &str) -> Result<Group, String> {
    let (address, sources) = match text.split_once('@') {
        Some((address, sources)) => (address, Some(sources)),
        None => (text, None),
    };
    let group: Group = address.parse().map_err(|error: ParseGroupError| {
        if address.parse::<SocketAddr>().is_ok() {
            return error.to_string();
        }
        format!("{address:?} is not an address with a port; allowed: 239.7.7.7:47000 or [ff15::7]:47000, with sources: 232.1.1.1:5000@10.0.0.1,10.0.0.2")
    })?;
    let Some(sources) = sources else {
        return Ok(group);
    };
    let sources: Result<Vec<_>, _> = sources
        .split(',')
        .map(|source| {
            source
                .parse()
                .map_err(|_| format!("source {source:?} is not an address; allowed: 10.0.0.1"))
        })
        .collect();
    Ok(group.from_sources(sources?))
}

/// An address with or without a port.
pub(super) fn source(text: &str) -> Result<SocketAddr, String> {
    let plain = || text.parse::<IpAddr>().map(|address| (address, 0).into());
    text.parse().or_else(|_| plain()).map_err(|_| {
        format!("{text:?} is not an address; allowed: 10.0.0.1, 10.0.0.1:5000, [fd00::1]:5000")
    })
}

pub(super) fn option(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("{text:?} has no name and value; allowed: NAME=VALUE"))?;
    let value =
        serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?} is not a time; allowed: 500ms, 10s, 2m, 1h, above zero");
    let digits = text
        .find(|one: char| one.is_ascii_alphabetic())
        .ok_or_else(refused)?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(refused()),
    };
    let number = decimal(number).ok_or_else(refused)?;
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_packets_or_bits() {
        let rate = |text: &str| text.parse::<Rate>();
        assert_eq!(rate("4000"), Ok(Rate::Packets(4_000)));
        assert_eq!(rate("1.5k"), Ok(Rate::Packets(1_500)));
        assert_eq!(rate("8Mbit"), Ok(Rate::Bits(8_000_000)));
        assert_eq!(rate("500bit"), Ok(Rate::Bits(500)));
        assert_eq!(rate("max"), Ok(Rate::Unlimited));
        for wrong in [
            "",
            "0",
            "-5",
            "k",
            "bit",
            "5x",
            "1e5",
            "inf",
            "9999999999999",
            "5Mbits",
        ] {
            assert!(rate(wrong).unwrap_err().contains("allowed:"), "{wrong}");
        }
    }

    #[test]
    fn speeds_are_words_or_factors() {
        let speed = |text: &str| text.parse::<Speed>();
        assert_eq!(speed("original"), Ok(Speed::Original));
        assert_eq!(speed("max"), Ok(Speed::Max));
        assert_eq!(speed("0.5"), Ok(Speed::Factor(0.5)));
        for wrong in ["", "0", "-1", "NaN", "inf", "fast", "1e3"] {
            assert!(speed(wrong).unwrap_err().contains("allowed:"), "{wrong}");
        }
    }

    #[test]
    fn times_have_a_unit_and_are_above_zero() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        for wrong in [
            "", "10", "s", "-1s", "1e9s", "0s", "1d", "1 s", "infs", "1.2.3s", "é",
        ] {
            let text = duration(wrong).unwrap_err();
            assert!(text.contains("allowed: 500ms"), "{wrong:?}: {text}");
        }
        let huge = format!("{}h", "9".repeat(300));
        assert!(duration(&huge).is_err());
    }

    #[test]
    fn groups_take_sources() {
        let plain = group("239.7.7.7:47000").unwrap();
        assert!(plain.sources.is_empty());
        let two = group("[ff3e::1]:5000@2001:db8::1,2001:db8::2").unwrap();
        assert_eq!(two.sources.len(), 2);
        assert_eq!(two.to_string(), "[ff3e::1]:5000");
        for wrong in [
            "239.7.7.7",
            "239.7.7.7:99999",
            ":5",
            "239.7.7.7:5@",
            "239.7.7.7:5@host",
            "[ff02::1%1]:5000",
            "[ff15::7%99]:5000@2001:db8::1",
        ] {
            assert!(group(wrong).unwrap_err().contains("allowed:"), "{wrong}");
        }
    }

    #[test]
    fn options_are_json_or_else_a_text() {
        assert_eq!(option("gro=true").unwrap().1, serde_json::json!(true));
        assert_eq!(option("rcvbuf=4096").unwrap().1, serde_json::json!(4096));
        assert_eq!(
            option("mode=fast=1").unwrap().1,
            serde_json::json!("fast=1")
        );
        assert!(option("=3").is_err());
        assert!(option("name").is_err());
    }
}
