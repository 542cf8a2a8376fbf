//! All optimisations of a program in one list, whichever crate they are in, each with a name that switches it off.
//!
//! Those of crate `opt` are passes over the IR; those of crate `jit` are ways of generating code. Who measures, or looks
//! for a bug, need not know which is which: `sluice check|run|stf|bench ... --without NAME,...` takes both, and the
//! benchmark has a row for each.
//!
//! Tests: at the end of the file; crate `difftest` leaves each out on generated programs.

use std::collections::BTreeSet;

/// Where an optimisation takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A pass over the IR.
    Ir,
    /// A way of generating code.
    Code,
}

/// An optimisation that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Optimisation {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Where.
    pub part: Part,
}

/// All optimisations in the order in which they take place.
pub fn optimisations() -> Vec<Optimisation> {
    let passes = opt::passes().map(|(name, about)| Optimisation { name, about, part: Part::Ir });
    let code = jit::Optimisation::ALL.into_iter();
    let code = code.map(|o| Optimisation { name: o.name(), about: o.about(), part: Part::Code });
    passes.chain(code).collect()
}

/// Optimisations that are left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Without(BTreeSet<&'static str>);

impl Without {
    /// Those with these names; an error names what there is.
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Without, String> {
        let all = optimisations();
        let find = |name: &str| {
            all.iter().find(|o| o.name == name).map(|o| o.name).ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|o| o.name).collect();
                format!("there is no optimisation `{name}`; there are: {}", names.join(", "))
            })
        };
        names.into_iter().map(|name| find(name.as_ref())).collect::<Result<_, _>>().map(Without)
    }

    /// All of them.
    pub fn all() -> Without {
        Without(optimisations().into_iter().map(|o| o.name).collect())
    }

    /// All but one.
    pub fn all_but(name: &str) -> Without {
        Without(optimisations().into_iter().map(|o| o.name).filter(|n| *n != name).collect())
    }

    /// Options for the passes.
    pub fn passes(&self) -> opt::Options {
        let disabled = opt::pass_names().filter(|name| self.0.contains(name)).map(str::to_string).collect();
        opt::Options { disabled, ..opt::Options::default() }
    }

    /// Options for the code.
    pub fn code(&self) -> jit::Options {
        let without = jit::Optimisation::ALL.into_iter().filter(|o| self.0.contains(o.name())).collect();
        jit::Options { without, ..jit::Options::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_each_switches_one_thing_off() {
        let all = optimisations();
        let names: BTreeSet<&str> = all.iter().map(|o| o.name).collect();
        assert_eq!(names.len(), all.len());
        for o in &all {
            assert!(!o.about.is_empty() && !o.about.contains('\n'), "{}", o.name);
            let one = Without::new([o.name]).expect("the name is in the list");
            let code = jit::Optimisation::ALL.into_iter().filter(|c| one.code().without.contains(*c)).count();
            assert_eq!(one.passes().disabled.len() + code, 1, "{}", o.name);
            let others = Without::all_but(o.name);
            let code = jit::Optimisation::ALL.into_iter().filter(|c| others.code().without.contains(*c)).count();
            assert_eq!(others.passes().disabled.len() + code, all.len() - 1, "{}", o.name);
        }
    }

    #[test]
    fn unknown_names_are_refused_with_those_that_there_are() {
        let error = Without::new(["dead_code", "deadcode"]).unwrap_err();
        assert!(
            error.contains("`deadcode`") && error.contains("dead_tables") && error.contains("edit_mode"),
            "{error}"
        );
    }
}
