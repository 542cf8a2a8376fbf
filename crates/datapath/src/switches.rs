//! All optimisations in one list, whichever crate they are in, each with a name that switches it off.
//!
//! Those of crate `opt` are passes over the IR, those of crate `jit` variants of code generation;
//! [`SPECIALISE_ACTIONS`] applies between the two, to specialised programs. Users who measure or look for a bug need
//! not know which is which: `sluice check|run|stf|bench ... --without NAME,...` accepts all, and the benchmark has a
//! row for each.
//!
//! Tests: at the end of the file; crate `difftest` switches each off on generated programs.

use std::collections::BTreeSet;

/// Where an optimisation takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A pass over the IR.
    Ir,
    /// A variant of code generation.
    Code,
}

/// An optimisation that can be switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Optimisation {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Where it takes place.
    pub part: Part,
}

/// The name of the optimisation that [`CodeOptions::specialise_actions`] switches.
pub const SPECIALISE_ACTIONS: &str = "specialise_actions";

/// Options for making code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeOptions {
    /// Options of the code generator.
    pub jit: jit::Options,
    /// Options of the passes, which run again on specialised programs.
    pub passes: opt::Options,
    /// Whether specialised programs use what all entries of a table have in common (one action, a parameter).
    pub specialise_actions: bool,
}

impl Default for CodeOptions {
    fn default() -> CodeOptions {
        jit::Options::default().into()
    }
}

impl From<jit::Options> for CodeOptions {
    fn from(jit: jit::Options) -> CodeOptions {
        CodeOptions { jit, passes: opt::Options::default(), specialise_actions: true }
    }
}

/// All optimisations, in the order in which they apply.
pub fn optimisations() -> Vec<Optimisation> {
    let passes = opt::passes().map(|(name, about)| Optimisation { name, about, part: Part::Ir });
    let code = jit::Optimisation::ALL.into_iter();
    let code = code.map(|o| Optimisation { name: o.name(), about: o.about(), part: Part::Code });
    let about = "write what all entries of a table have in common into the program, where code is made for them";
    let actions = Optimisation { name: SPECIALISE_ACTIONS, about, part: Part::Ir };
    let about = "let packets that only read a register's cell do so without its lock, where several workers run";
    let peeks = Optimisation { name: opt::PEEKS, about, part: Part::Ir };
    let about = "change registers' cells by one instruction instead of under a lock, where several workers run";
    let updates = Optimisation { name: opt::UPDATES, about, part: Part::Ir };
    passes.chain([updates, peeks, actions]).chain(code).collect()
}

/// A set of optimisations to switch off.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Without(BTreeSet<&'static str>);

impl Without {
    /// The optimisations with these names.
    ///
    /// # Errors
    /// A message that lists all names, if one is unknown.
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

    /// The options of the passes.
    pub fn passes(&self) -> opt::Options {
        let disabled = opt::pass_names()
            .chain([opt::UPDATES, opt::PEEKS])
            .filter(|name| self.0.contains(name))
            .map(str::to_string)
            .collect();
        opt::Options { disabled, ..opt::Options::default() }
    }

    /// The options of code, passes included.
    pub fn code(&self) -> CodeOptions {
        let without = jit::Optimisation::ALL.into_iter().filter(|o| self.0.contains(o.name())).collect();
        CodeOptions {
            jit: jit::Options { without, ..jit::Options::default() },
            passes: self.passes(),
            specialise_actions: !self.0.contains(SPECIALISE_ACTIONS),
        }
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
        let left_out = |without: &Without| {
            let code = without.code();
            assert_eq!(code.passes, without.passes());
            let in_code = jit::Optimisation::ALL.into_iter().filter(|o| code.jit.without.contains(*o)).count();
            code.passes.disabled.len() + in_code + usize::from(!code.specialise_actions)
        };
        assert_eq!(left_out(&Without::default()), 0);
        for o in &all {
            assert!(!o.about.is_empty() && !o.about.contains('\n'), "{}", o.name);
            let one = Without::new([o.name]).expect("the name is in the list");
            assert_eq!(left_out(&one), 1, "{}", o.name);
            assert_eq!(left_out(&Without::all_but(o.name)), all.len() - 1, "{}", o.name);
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
