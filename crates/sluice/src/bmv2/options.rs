//! Parses command lines as bmv2's and p4c's programs do: `--name value` and `--name=value`, `-Ivalue` and `-I value`,
//! options and files in any order; arguments after `--` are kept apart.

use anyhow::{Result, bail};

/// Whether an option has a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// No value.
    Nothing,
    /// One value.
    Value,
    /// One value after `=`, or none.
    Optional,
}

/// The effect of an option.
#[derive(Clone, Copy, Debug)]
pub enum Does<T> {
    /// It sets this.
    Sets(T),
    /// It is ignored for this reason, which is reported at the start unless it is empty.
    Ignored(&'static str),
    /// It is refused for this reason.
    Refused(&'static str),
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct Spec<T: 'static> {
    /// Its names, with their dashes.
    pub names: &'static [&'static str],
    /// Whether it has a value.
    pub takes: Takes,
    /// Its effect.
    pub does: Does<T>,
    /// A line of help.
    pub help: &'static str,
}

/// Returns an option that has an effect.
pub const fn set<T>(names: &'static [&'static str], takes: Takes, option: T, help: &'static str) -> Spec<T> {
    Spec { names, takes, does: Does::Sets(option), help }
}

/// Returns an option that is accepted and ignored, with the reason.
pub const fn ignored<T>(names: &'static [&'static str], takes: Takes, why: &'static str) -> Spec<T> {
    Spec { names, takes, does: Does::Ignored(why), help: "" }
}

/// Returns an option that is refused, with the reason.
pub const fn refused<T>(names: &'static [&'static str], takes: Takes, why: &'static str) -> Spec<T> {
    Spec { names, takes, does: Does::Refused(why), help: "" }
}

/// A parsed command line.
#[derive(Debug)]
pub struct Given<T> {
    /// Options that have an effect, in order; a missing value is empty.
    pub options: Vec<(T, String)>,
    /// Arguments that are no options.
    pub files: Vec<String>,
    /// Arguments after `--`.
    pub behind: Vec<String>,
    /// Notes about ignored options.
    pub notes: Vec<String>,
}

impl<T: Copy + PartialEq> Given<T> {
    /// Returns the last value of an option.
    pub fn last(&self, wanted: T) -> Option<&str> {
        self.options.iter().rev().find(|(option, _)| *option == wanted).map(|(_, value)| value.as_str())
    }

    /// Returns all values of an option, in order.
    pub fn all(&self, wanted: T) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |(option, _)| *option == wanted).map(|(_, value)| value.as_str())
    }

    /// Whether an option is present.
    pub fn has(&self, wanted: T) -> bool {
        self.last(wanted).is_some()
    }
}

/// How a program matches option names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// In full, as p4c-bm2-ss does.
    Whole,
    /// Also by unambiguous prefixes of long names, as Boost's program_options and Python's argparse do.
    Beginnings,
}

/// Parses a command line.
///
/// # Errors
/// If an option is unknown, ambiguous or refused, or its value is missing.
pub fn read<T: Copy>(specs: &[Spec<T>], names: Names, args: Vec<String>) -> Result<Given<T>> {
    let mut given = Given { options: Vec::new(), files: Vec::new(), behind: Vec::new(), notes: Vec::new() };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            given.behind = args.collect();
            break;
        }
        if !arg.starts_with('-') || arg == "-" {
            given.files.push(arg);
            continue;
        }
        let found = match find(specs, &arg) {
            None if names == Names::Beginnings => begun(specs, &arg)?,
            found => found,
        };
        let Some((spec, name, value)) = found else {
            bail!("there is no option {}; --help lists them", arg.split('=').next().unwrap_or(&arg));
        };
        if let Does::Refused(why) = spec.does {
            bail!("{name} is not supported: {why}");
        }
        let value = match (spec.takes, value) {
            (Takes::Nothing, Some(_)) => bail!("{name} takes no value"),
            (Takes::Nothing | Takes::Optional, None) => String::new(),
            (_, Some(value)) => value,
            (Takes::Value, None) => match args.next() {
                Some(value) => value,
                None => bail!("{name} needs a value"),
            },
        };
        match spec.does {
            Does::Sets(option) => given.options.push((option, value)),
            Does::Ignored("") => {}
            Does::Ignored(why) => given.notes.push(format!("{name} changes nothing: {why}")),
            Does::Refused(_) => {}
        }
    }
    Ok(given)
}

/// Returns the option of an argument, its name, and its value if the argument contains it.
fn find<'s, T>(specs: &'s [Spec<T>], arg: &str) -> Option<(&'s Spec<T>, &'s str, Option<String>)> {
    let named = |wanted: &str| {
        let has = |spec: &&Spec<T>| spec.names.contains(&wanted);
        let spec = specs.iter().find(has)?;
        spec.names.iter().find(|name| **name == wanted).map(|name| (spec, *name))
    };
    if let Some((spec, name)) = named(arg) {
        return Some((spec, name, None));
    }
    if arg.starts_with("--") {
        let (name, value) = arg.split_once('=')?;
        return named(name).map(|(spec, name)| (spec, name, Some(value.to_string())));
    }
    let (letter, value) = (arg.get(..2)?, arg.get(2..)?);
    let (spec, name) = named(letter).filter(|(spec, _)| spec.takes != Takes::Nothing)?;
    Some((spec, name, Some(value.strip_prefix('=').unwrap_or(value).to_string())))
}

/// An option, its full name, and the value after `=`.
type Begun<'s, T> = (&'s Spec<T>, &'s str, Option<String>);

/// Returns the option that an abbreviated long name selects, in the form of [`find`].
fn begun<'s, T>(specs: &'s [Spec<T>], arg: &str) -> Result<Option<Begun<'s, T>>> {
    if !arg.starts_with("--") {
        return Ok(None);
    }
    let (begin, value) = arg.split_once('=').map_or((arg, None), |(name, value)| (name, Some(value.to_string())));
    let names = specs.iter().flat_map(|spec| spec.names.iter().map(move |name| (spec, *name)));
    let found: Vec<_> = names.filter(|(_, name)| name.starts_with(begin)).collect();
    match found.as_slice() {
        [] => Ok(None),
        [(spec, name)] => Ok(Some((spec, name, value))),
        several => {
            let names: Vec<&str> = several.iter().map(|(_, name)| *name).collect();
            bail!("{begin} is the beginning of {}", names.join(", "))
        }
    }
}

/// Returns the help text of a program's options.
pub fn help<T>(specs: &[Spec<T>]) -> String {
    let mut text = String::new();
    for spec in specs {
        let value = match spec.takes {
            Takes::Nothing => "",
            Takes::Value => " VALUE",
            Takes::Optional => "[=VALUE]",
        };
        let names = spec.names.join(", ");
        let what = match spec.does {
            Does::Sets(_) => spec.help.to_string(),
            Does::Ignored("") => "Accepted; changes nothing".to_string(),
            Does::Ignored(why) => format!("Accepted; changes nothing: {why}"),
            Does::Refused(why) => format!("Not supported: {why}"),
        };
        text += &format!("  {names}{value}\n      {what}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Option {
        Include,
        Output,
        Flag,
        Error,
    }

    const SPECS: &[Spec<Option>] = &[
        Spec { names: &["-I"], takes: Takes::Value, does: Does::Sets(Option::Include), help: "" },
        Spec { names: &["-o", "--output"], takes: Takes::Value, does: Does::Sets(Option::Output), help: "" },
        Spec { names: &["--flag"], takes: Takes::Nothing, does: Does::Sets(Option::Flag), help: "" },
        Spec { names: &["--Werror"], takes: Takes::Optional, does: Does::Sets(Option::Error), help: "" },
        Spec { names: &["--quiet"], takes: Takes::Nothing, does: Does::Ignored("it is quiet"), help: "" },
        Spec { names: &["--dump"], takes: Takes::Value, does: Does::Refused("nothing is dumped"), help: "" },
    ];

    fn given(line: &str) -> Result<Given<Option>> {
        read(SPECS, Names::Whole, line.split(' ').map(ToString::to_string).collect())
    }

    #[test]
    fn values_stand_beside_behind_and_after_an_equals_sign() {
        let given = given("-Ia -I b a.p4 --output=c -o d --Werror --Werror=x --quiet - -- --flag e").unwrap();
        assert_eq!(given.all(Option::Include).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(given.last(Option::Output), Some("d"));
        assert_eq!(given.all(Option::Error).collect::<Vec<_>>(), ["", "x"]);
        assert_eq!(given.files, ["a.p4", "-"]);
        assert_eq!(given.behind, ["--flag", "e"]);
        assert_eq!(given.notes, ["--quiet changes nothing: it is quiet"]);
        assert!(!given.has(Option::Flag));
    }

    #[test]
    fn beginnings_stand_for_names_where_programs_take_them() {
        let given = |names, line: &str| read(SPECS, names, line.split(' ').map(ToString::to_string).collect());
        let begun = given(Names::Beginnings, "--out=a --fl --We=x --out b --qui").unwrap();
        assert_eq!(begun.all(Option::Output).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((begun.has(Option::Flag), begun.last(Option::Error)), (true, Some("x")));
        assert_eq!(begun.notes, ["--quiet changes nothing: it is quiet"]);
        let error = |names, line| given(names, line).unwrap_err().to_string();
        assert_eq!(
            error(Names::Beginnings, "--=x"),
            "-- is the beginning of --output, --flag, --Werror, --quiet, --dump"
        );
        assert!(error(Names::Beginnings, "--du x").starts_with("--dump is not supported"));
        assert!(error(Names::Beginnings, "-fl").starts_with("there is no option -fl;"));
        assert!(error(Names::Beginnings, "--outputs x").starts_with("there is no option --outputs;"));
        assert!(error(Names::Whole, "--out=a").starts_with("there is no option --out;"));
    }

    #[test]
    fn what_cannot_be_given_is_named() {
        for (line, said) in [
            ("--dump x", "--dump is not supported: nothing is dumped"),
            ("--dump=x", "--dump is not supported"),
            ("--wrong=1", "there is no option --wrong;"),
            ("-x", "there is no option -x;"),
            ("-é", "there is no option -é;"),
            ("-o", "-o needs a value"),
            ("--flag=1", "--flag takes no value"),
        ] {
            let error = given(line).unwrap_err().to_string();
            assert!(error.starts_with(said), "{line}: {error}");
        }
    }
}
