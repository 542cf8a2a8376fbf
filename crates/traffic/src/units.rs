//! Rates, sizes, durations and queue levels, and their text forms: `100Mbit`, `64KB`, `5ms`, `30packets`.
//!
//! Prefixes are decimal (`k`, `M`, `G`, `T`: powers of 1000) or, for sizes, binary (`Ki`, `Mi`, `Gi`: powers of 1024),
//! in any case. Fractions are exact (`2.5Gbit`); a value that is not a whole number of bits per second, bytes or
//! nanoseconds is refused. So are `Mbps` and similar units, which are bits to most people and bytes to `tc`. Written
//! text reads back as the same value. In JSON, a number without a unit is in bit/s, bytes or nanoseconds.
//!
//! Tests below.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rate(pub u64);

/// A size in bytes.
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

/// A duration in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub u64);

/// A queue's level: in packets, in bytes, or as the time that its head has waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Number of packets.
    Packets(u32),
    /// Number of bytes.
    Bytes(Size),
    /// Time that the head has waited.
    Time(Span),
}

/// Why a text is not a valid rate, size, duration or level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitError(String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

/// Unit names and factors in ascending order; of several names for one factor the first is written.
type Units = &'static [(&'static str, u64)];

const RATES: Units =
    &[("bit", 1), ("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000), ("Tbit", 1_000_000_000_000)];
const SIZES: Units = &[
    ("B", 1),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];
const SPANS: Units = &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Parses a decimal number and a unit. `what` names the value in errors; `bare` tells whether the unit may be missing.
fn parse(text: &str, units: Units, what: &str, bare: bool) -> Result<u64, UnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim());
    let examples = || {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).filter(|name| name.is_ascii()).collect();
        names.join(", ")
    };
    let factor = match units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() && bare => 1,
        None if unit.is_empty() && !number.is_empty() => {
            return Err(UnitError(format!("`{text}` has no unit: {what} is in {}", examples())));
        }
        None if unit.to_ascii_lowercase().ends_with("bps") => {
            return Err(UnitError(format!(
                "`{text}`: `{unit}` may mean bits or bytes per second; write one of {}",
                examples()
            )));
        }
        None if number.is_empty() => {
            return Err(UnitError(format!("`{text}` is not {what}: a number and one of {} are expected", examples())));
        }
        None => return Err(UnitError(format!("`{text}`: the unit `{unit}` is unknown; {what} is in {}", examples()))),
    };
    let malformed = || UnitError(format!("`{text}`: `{number}` is not a decimal number"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(malformed());
    }
    let too_large = || UnitError(format!("`{text}` is too large"));
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let digits = fraction.trim_end_matches('0');
    if digits.len() > 18 {
        return Err(UnitError(format!("`{text}` has more than 18 decimals")));
    }
    let scale = 10u128.pow(digits.len() as u32);
    let numerator: u128 = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| malformed())? };
    let part = numerator * u128::from(factor);
    if !part.is_multiple_of(scale) {
        return Err(UnitError(format!("`{text}` is not a whole number of {}", units[0].0)));
    }
    u64::try_from(u128::from(whole) * u128::from(factor) + part / scale).map_err(|_| too_large())
}

/// Writes `value` in the largest unit of which it is a multiple.
fn print(value: u64, units: Units, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fits = |&(_, factor): &(&str, u64)| value != 0 && value.is_multiple_of(factor);
    let best = units.iter().copied().filter(fits).max_by_key(|&(name, factor)| (factor, name.is_ascii()));
    let (name, factor) = best.unwrap_or(units[0]);
    write!(f, "{}{name}", value / factor)
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Rate, UnitError> {
        parse(text.trim().strip_suffix("/s").unwrap_or(text), RATES, "a rate", true).map(Rate)
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Size, UnitError> {
        parse(text, SIZES, "a size", true).map(Size)
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Span, UnitError> {
        parse(text, SPANS, "a time", false).map(Span)
    }
}

impl FromStr for Level {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Level, UnitError> {
        let trimmed = text.trim();
        let unit = trimmed.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim().to_ascii_lowercase();
        let is = |units: Units| units.iter().any(|(name, _)| name.eq_ignore_ascii_case(&unit));
        match unit.as_str() {
            "p" | "packet" | "packets" => {
                let number = trimmed[..trimmed.len() - unit.len()].trim();
                let packets = number.parse();
                packets
                    .map(Level::Packets)
                    .map_err(|_| UnitError(format!("`{text}`: `{number}` is not a number of packets")))
            }
            _ if is(SIZES) => text.parse().map(Level::Bytes),
            _ if is(SPANS) => text.parse().map(Level::Time),
            _ => Err(UnitError(format!(
                "`{text}` is no threshold: packets (`30packets`), a size (`64KB`) or a time (`5ms`) is expected"
            ))),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, RATES, f)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, SIZES, f)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, SPANS, f)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Packets(packets) => write!(f, "{packets}packets"),
            Level::Bytes(size) => size.fmt(f),
            Level::Time(span) => span.fmt(f),
        }
    }
}

/// A text with a unit, or a number without one.
struct TextOrNumber<V>(V);

impl<'de, V: FromStr<Err = UnitError> + From<Bare>> Deserialize<'de> for TextOrNumber<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<V>(std::marker::PhantomData<V>);
        impl<V: FromStr<Err = UnitError> + From<Bare>> de::Visitor<'_> for Visitor<V> {
            type Value = V;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text with a unit, or a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<V, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<V, E> {
                Ok(V::from(Bare(number)))
            }
        }
        deserializer.deserialize_any(Visitor(std::marker::PhantomData)).map(TextOrNumber)
    }
}

/// A number without a unit.
struct Bare(u64);

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl From<Bare> for $name {
            fn from(bare: Bare) -> $name {
                $name(bare.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                TextOrNumber::deserialize(deserializer).map(|TextOrNumber(value)| value)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_text!(Rate, Size, Span);

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Level, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        let rate = |text: &str| text.parse::<Rate>().map(|r| r.0);
        assert_eq!(rate("100Mbit"), Ok(100_000_000));
        assert_eq!(rate(" 2.5 gbit/s "), Ok(2_500_000_000));
        assert_eq!(rate("0.0015kbit"), Err(UnitError("`0.0015kbit` is not a whole number of bit".into())));
        assert_eq!(rate("8000"), Ok(8000));
        assert_eq!("64KB".parse(), Ok(Size(64_000)));
        assert_eq!("64KiB".parse(), Ok(Size(65_536)));
        assert_eq!("5ms".parse(), Ok(Span(5_000_000)));
        assert_eq!("1.5µs".parse(), Ok(Span(1500)));
        assert_eq!("30packets".parse(), Ok(Level::Packets(30)));
        assert_eq!("1 p".parse(), Ok(Level::Packets(1)));
        assert_eq!("3MB".parse(), Ok(Level::Bytes(Size(3_000_000))));
        assert_eq!("20us".parse(), Ok(Level::Time(Span(20_000))));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let error = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
        assert!(error("10Mbps").contains("bits or bytes"), "{}", error("10Mbps"));
        assert!(error("10parsec").contains("`parsec` is unknown"));
        assert!(error("1.2.3Mbit").contains("not a decimal"));
        assert!(error("fast").contains("is not a rate"));
        assert!(error("").contains("is not a decimal number"));
        assert!(error("-1Mbit").contains("`-1Mbit`"));
        assert!(error("99999999999999999999Mbit").contains("too large"));
        assert!(error("18446744073709551615Tbit").contains("too large"));
        assert!("5".parse::<Span>().unwrap_err().to_string().contains("no unit"));
        assert!("5".parse::<Level>().unwrap_err().to_string().contains("threshold"));
        assert!("1.5packets".parse::<Level>().is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut random = random::Random::new(22);
        for _ in 0..20_000 {
            let value = random.next_u64() >> random.below(64);
            let value = if random.one_in(2) { value } else { value / 1000 * 1000 };
            assert_eq!(Rate(value).to_string().parse(), Ok(Rate(value)));
            assert_eq!(Size(value).to_string().parse(), Ok(Size(value)));
            assert_eq!(Span(value).to_string().parse(), Ok(Span(value)));
            assert_eq!(Level::Bytes(Size(value)).to_string().parse(), Ok(Level::Bytes(Size(value))));
        }
        assert_eq!(Rate(2_500_000_000).to_string(), "2500Mbit");
        assert_eq!(Span(1000).to_string(), "1us");
    }
}
